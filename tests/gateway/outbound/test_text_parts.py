"""Splitting of long texts into pieces."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.contracts.platform import Button, Content, PlatformCapabilities, Unit
from talaria.core.messages import File
from talaria.gateway.outbound.text_parts import GrowingText, measure, split_content, split_text

FOX = "👩🏽‍🚒"
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(
            [
                "\n",
                "\n\n",
                "\n \n\n",
                "```python\n",
                "```\n",
                "\n```\n",
                "~~~\n",
                "    indented",
                FOX,
                "🇸🇪🇳🇴",
                "e\u0301",
            ]
        ),
        st.sampled_from(["https://example.org/a_long/path?with=query", "[a link](https://example.org/x)", "한국어"]),
        st.text("abc \n`", max_size=80),
    ),
    max_size=30,
).map("".join)


def split(text: str, limit: int, unit: Unit = "characters") -> list[str]:
    """Return all pieces of a text."""
    return list(split_text(text, limit, unit))


def without_fences(text: str) -> str:
    """Return a text without white space and code fences."""
    lines = [line for line in text.split("\n") if not re.match(r" {0,3}(```|~~~)", line)]
    return re.sub(r"\s|[\x1c-\x1f\x85]", "", "".join(lines))


@pytest.mark.slow
@given(TEXTS, st.integers(20, 200), st.sampled_from(["characters", "utf16", "bytes"]))
def test_pieces_are_within_the_limit(text: str, limit: int, unit: Unit) -> None:
    pieces = split(text, limit, unit)
    assert [piece for piece in pieces if measure(piece, unit) > limit] == []
    assert all(piece.strip() for piece in pieces)


@pytest.mark.slow
@given(TEXTS.filter(lambda text: "``" not in text and "~~~" not in text), st.integers(20, 200))
def test_joined_pieces_equal_the_text(text: str, limit: int) -> None:
    assert "".join("".join(split(text, limit)).split()) == "".join(text.split())


@given(st.lists(st.text("abc xyz", min_size=1, max_size=60), max_size=30), st.integers(40, 200))
def test_split_code_block_has_balanced_fences_in_each_piece(lines: list[str], limit: int) -> None:
    text = "\n".join(["before", "```python", *lines, "```", "behind"])
    pieces = split(text, limit)
    assert without_fences("\n".join(pieces)) == without_fences(text)
    for piece in pieces:
        assert piece.count("```") % 2 == 0
        assert [line for line in piece.split("\n") if line.startswith("```p")] == ["```python"] * (
            piece.count("```") // 2
        )


@pytest.mark.slow
@given(st.lists(st.sampled_from([FOX, "🇸🇪", "e\u0301", "❤️", "1️⃣", "각", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"]), max_size=40), st.integers(30, 60))
def test_emoji_are_not_split(emoji: list[str], limit: int) -> None:
    complete = set(emoji)
    for piece in split("".join(emoji), limit, "bytes"):
        rest = piece
        while rest:
            first = next((one for one in complete if rest.startswith(one)), None)
            assert first is not None, piece
            rest = rest.removeprefix(first)


@pytest.mark.slow
@given(st.lists(st.text("ab ", min_size=1, max_size=25), min_size=1, max_size=20), st.integers(60, 120))
def test_links_are_not_split(between: list[str], limit: int) -> None:
    link = "[the long name of a page](https://example.org/page)"
    pieces = split(link.join(["", *between, ""]), limit)
    assert sum(piece.count(link) for piece in pieces) == len(between) + 1


@pytest.mark.slow
@given(TEXTS, st.integers(20, 60), st.sampled_from(["characters", "utf16", "bytes"]), st.data())
def test_growing_text_has_the_same_pieces_as_the_full_text(
    text: str, limit: int, unit: Unit, data: st.DataObject
) -> None:
    text *= data.draw(st.integers(1, 12))
    growing, end = GrowingText(limit, unit), 0
    while end < len(text):
        end += data.draw(st.integers(1, len(text)))
        assert growing.split_text(text[:end]) == split(text[:end], limit, unit)


def test_growing_text_that_becomes_another_is_split_again() -> None:
    growing = GrowingText(20)
    for text in ("one " * 2_000, "two " * 2_000, "three"):
        assert growing.split_text(text) == split(text, 20)


@pytest.mark.parametrize("text", ["word " * 50_000, "x" * 200_000, "```\n" + "code\n" * 30_000, "🦊 " * 50_000])
def test_first_piece_of_a_long_text_needs_only_its_beginning(text: str) -> None:
    assert next(split_text(text, 1_000, "utf16")) == next(split_text(text[:10_000], 1_000, "utf16"))


def test_a_short_text_is_one_piece() -> None:
    assert split("hello\n", 10) == ["hello"]
    assert split("  \n\n", 10) == []


def test_paragraphs_are_preferred_to_lines_and_lines_to_words() -> None:
    text = "one two three\nfour five\n\nsix seven eight nine"
    assert split(text, 40) == ["one two three\nfour five", "six seven eight nine"]
    assert split("one two three\nfour five six", 20) == ["one two three", "four five six"]
    assert split("one two three four five", 16) == ["one two three", "four five"]
    assert split("abcdefghijkl", 5) == ["abcde", "fghij", "kl"]


def test_short_paragraph_is_joined_with_the_long_one_after_it() -> None:
    first, *_ = split("Hi.\n\n" + "word " * 100, 100)
    assert len(first) > 80


def test_split_code_block_is_reopened_with_its_language() -> None:
    text = (
        "Look:\n\n```python\n" + "\n".join(f"line_{number} = {number}" for number in range(10)) + "\n```\n\nThat's it."
    )
    pieces = split(text, 60)
    assert len(pieces) > 2
    assert pieces[0].startswith("Look:\n\n```python\nline_0 = 0\n")
    assert pieces[0].endswith("\n```")
    assert pieces[1].startswith("```python\nline_")
    assert pieces[-1].endswith("```\n\nThat's it.")


def test_split_code_block_preserves_indentation() -> None:
    body = "\n".join(f"    indented_{number}()" for number in range(12))
    for piece in split(f"```\n{body}\n```", 80):
        assert piece.split("\n")[1].startswith("    indented_")


def test_shorter_fence_does_not_close_a_longer_one() -> None:
    text = "````md\n```\ninner\n```\n" + "x" * 60 + "\n````"
    pieces = split(text, 60)
    assert all(piece.startswith("````md\n") and piece.endswith("\n````") for piece in pieces)


def test_limit_is_counted_in_the_unit_of_the_network() -> None:
    assert [measure("🦊é", unit) for unit in ("characters", "utf16", "bytes")] == [2, 3, 6]
    assert split("🦊" * 6, 6, "utf16") == ["🦊🦊🦊", "🦊🦊🦊"]
    assert split("🦊" * 6, 8, "bytes") == ["🦊🦊"] * 3


def test_link_or_emoji_over_the_limit_is_cut() -> None:
    address = "https://example.org/" + "a" * 50
    assert "".join(split(address, 30)) == address
    assert all(len(piece.encode()) <= 8 for piece in split(FOX, 8, "bytes"))


@pytest.mark.slow
def test_a_long_text_is_cut_quickly() -> None:
    text = ("[" * 50 + "word " * 200 + "\n\n") * 100
    assert "".join("".join(split(text, 4096)).split()) == "".join(text.split())


def test_a_long_message_is_split_and_followed_by_its_files() -> None:
    file = File("/tmp/a.txt", "a.txt")
    content = Content(text="one two\n\nthree four", files=(file, file), buttons=(Button("Yes", "y"),), reply_to="7")
    assert split_content(content, PlatformCapabilities(text_limit=12)) == [
        Content(text="one two", reply_to="7"),
        Content(text="three four", buttons=(Button("Yes", "y"),)),
        Content(files=(file,)),
        Content(files=(file,)),
    ]
    assert split_content(Content(), PlatformCapabilities(text_limit=12)) == []


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_combining_accents_stay_with_their_letters(form: str) -> None:
    text = unicodedata.normalize("NFD" if form == "NFD" else "NFC", "ééééééééé")
    assert all(unicodedata.normalize("NFC", piece).strip("é") == "" for piece in split(text, 5))
