"""Markdown becomes text with entities that Telegram accepts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from talaria.core.errors import Rejected
from talaria.platforms.content import sanitize_text
from talaria.platforms.telegram.formatting import (
    MOST_ENTITIES,
    TEXT_LIMIT,
    Entity,
    Formatted,
    format_text,
    utf16_length,
)

PIECES = [
    "word", "två", "😀", "👩‍👩‍👧", "日本",
    "*", "**", "_", "__", "~~", "`", "```", "```py\n", "\n", "\n\n", " ", "- ", "1. ",
    "> ", "# ", "## ", "[a](https://a.example/x)", "[", "](", ")", "![i](p.png)", "<b>", "&amp;", "\\", "|",
    "| a | b |\n",
    "|---|---|\n", "---\n", "    ", "\t", "https://b.example", "- [ ] ", "\u0301", "\u200b", "\x00", "\r\n",
]  # fmt: skip
MARKDOWN = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.text(max_size=300),
    st.lists(st.one_of(st.sampled_from(PIECES), st.characters()), max_size=40).map("".join),
)


def list_entities(formatted: Formatted) -> list[tuple[str, str, str]]:
    return [(one.kind, covered_text(formatted.text, one), one.value) for one in formatted.entities]


def covered_text(text: str, entity: Entity) -> str:
    """Return the text that an entity covers; fail if it begins or ends within a character."""
    data = text.encode("utf-16-le")
    return data[entity.offset * 2 : (entity.offset + entity.length) * 2].decode("utf-16-le")


def crosses(one: Entity, other: Entity) -> bool:
    return one.offset < other.offset < one.offset + one.length < other.offset + other.length


@pytest.mark.slow
@given(MARKDOWN)
def test_entities_lie_within_the_text_and_on_character_boundaries(source: str) -> None:
    try:
        formatted = format_text(source)
    except Rejected:
        return
    length = utf16_length(formatted.text)
    assert formatted.text.strip()
    for entity in formatted.entities:
        assert 0 <= entity.offset < entity.offset + entity.length <= length
        assert covered_text(formatted.text, entity).strip()


@pytest.mark.slow
@example("*word[a](https://a.example/x)*[a](https://a.example/x)")
@given(MARKDOWN)
def test_entities_are_nested_as_telegram_requires(source: str) -> None:
    try:
        entities = format_text(source).entities
    except Rejected:
        return
    for one in entities:
        for other in entities:
            assert not crosses(one, other)
            if one is not other and one.kind in ("code", "pre"):
                inside = one.offset <= other.offset < one.offset + one.length
                assert not inside or other.kind == "blockquote"
            if one is not other and one.kind == other.kind:
                assert one.offset + one.length <= other.offset or other.offset + other.length <= one.offset


@pytest.mark.slow
@given(MARKDOWN, st.integers(1, 80))
def test_formatted_text_is_never_longer_than_the_limit(source: str, limit: int) -> None:
    try:
        formatted = format_text(source, limit)
    except Rejected:
        return
    assert utf16_length(formatted.text) <= limit


@given(st.text(min_size=1, max_size=TEXT_LIMIT // 2))
def test_only_empty_text_is_refused_below_the_limit(source: str) -> None:
    try:
        format_text(source)
    except Rejected:
        assert not sanitize_text(source).strip()


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=50))
def test_plain_text_is_unchanged(text: str) -> None:
    assert format_text(text) == Formatted(text)


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("**b** *i*", "b i", [("bold", "b", ""), ("italic", "i", "")]),
        ("~~s~~ `c`", "s c", [("strikethrough", "s", ""), ("code", "c", "")]),
        ("😀 **fett**", "😀 fett", [("bold", "fett", "")]),
        ("# Title\n\nText", "Title\n\nText", [("bold", "Title", "")]),
        ("```python\nx = 1\n```", "x = 1", [("pre", "x = 1", "python")]),
        ("```\n  indented\n```", "  indented", [("pre", "  indented", "")]),
        ("[site](https://a.example/?q=1)", "site", [("text_link", "site", "https://a.example/?q=1")]),
        ("[notes](docs/notes.md)", "notes (docs/notes.md)", []),
        ("<https://a.example>", "https://a.example", []),
        ("[`f`](https://a.example)", "f", [("text_link", "f", "https://a.example")]),
        ("**see `f` now**", "see f now", [("bold", "see", ""), ("code", "f", ""), ("bold", "now", "")]),
        ("> a\n> > b\n\nc", "a\nb\n\nc", [("blockquote", "a\nb", "")]),
        ("> a\n\nx\n\n> b", "a\n\nx\n\nb", [("blockquote", "a", ""), ("blockquote", "b", "")]),
        ("- a\n- b\n  - c\n", "• a\n• b\n  • c", []),
        ("3. a\n4. b", "3. a\n4. b", []),
        ("- [ ] open\n- [x] done", "☐ open\n☑ done", []),
        ("one\ntwo\n\nthree", "one\ntwo\n\nthree", []),
        ("Intro:\n- a\n- b\n\nEnd", "Intro:\n• a\n• b\n\nEnd", []),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name", []),
        ("<b>not html</b> &lt;", "<b>not html</b> <", []),
        ("![a cat](https://a.example/cat.png)", "a cat", [("text_link", "a cat", "https://a.example/cat.png")]),
        ("[](https://a.example)", "https://a.example", [("text_link", "https://a.example", "https://a.example")]),
        ("[x](javascript:alert)", "[x](javascript:alert)", []),
    ],
)  # fmt: skip
def test_markdown_becomes_text_with_entities(source: str, text: str, expected: list[tuple[str, str, str]]) -> None:
    formatted = format_text(source)
    assert formatted.text == text
    assert list_entities(formatted) == expected


def test_a_narrow_table_is_drawn() -> None:
    formatted = format_text("| a | bb |\n|---|---|\n| **1** | 日本 |")
    assert formatted.text == "a │ bb\n──┼─────\n1 │ 日本"
    assert list_entities(formatted) == [("pre", formatted.text, "")]


def test_wide_table_becomes_a_list_of_rows() -> None:
    long = "a value that is much too long for a telephone"
    formatted = format_text(f"| City | Size | Note |\n|---|---|---|\n| [Rome](https://a.example) | 2 | {long} |")
    assert formatted.text == f"• Rome: Size: 2; Note: {long}"
    assert ("text_link", "Rome", "https://a.example") in list_entities(formatted)


def test_code_block_in_a_list_has_its_language_and_lines() -> None:
    formatted = format_text("1. Do:\n   ```sh\n   ls\n     -l\n   ```\n2. Then")
    assert formatted.text == "1. Do:\nls\n  -l\n2. Then"
    assert list_entities(formatted) == [("pre", "ls\n  -l", "sh")]


def test_markup_without_visible_text_is_sent_literally() -> None:
    assert format_text("[]()").text.strip()
    assert format_text("```\n```").text.strip()


@pytest.mark.parametrize("text", ["", " \n", "\x00\x01", "\r\n"])
def test_empty_text_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        format_text(text)


def test_a_text_that_is_too_long_is_refused() -> None:
    format_text("😀" * (TEXT_LIMIT // 2))
    with pytest.raises(Rejected):
        format_text("😀" * (TEXT_LIMIT // 2) + "x")


def test_code_and_links_remain_if_there_are_too_many_entities() -> None:
    formatted = format_text("**b** " * 120 + "[l](https://a.example) `c`")
    kinds = [one.kind for one in formatted.entities]
    assert len(kinds) == MOST_ENTITIES
    assert {"text_link", "code"} <= set(kinds)


def test_control_characters_and_surrogates_are_replaced() -> None:
    assert format_text("a\ud800b\x07c\r\nd").text == "a\ufffdbc\nd"


def test_deep_nesting_does_not_fail() -> None:
    assert format_text("> " * 2000 + "x").text
    assert format_text("- " * 2000 + "x").text
    assert format_text("*a _b " * 600).text
    assert format_text("[" * 2000 + "]" * 2000).text
