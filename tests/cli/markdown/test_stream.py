"""Markdown rendering of a streamed reply: final output and output in progress."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from talaria.cli.markdown.stream import MarkdownStream, render
from talaria.cli.markdown.styled_text import THEMES

DARK = THEMES["dark"]
STYLE = re.compile(r"\x1b\[[0-9;]+m")
PIECES = (
    "# ", "## h", "text", "two words", " ", "  ", "    ", "\t", "\n", "\n\n", "- ", "* ", "1. ", "2) ", "> ", ">",
    "- [x] ", "**", "*", "_", "~~", "`", "``", "```", "```python\n", "```yaml\n", "```c\n", "~~~", "---", "===", "|",
    "|-|-|", "a|b\n", ":-:|-", "\\", "[a](b)", "![", "](", "<http://x.test>", "https://x.test/a_b", "<div>", "<!--",
    "&lt;", "&#27;", "&#x202e;", "def f():", '"""', "/*", "*/", "'", "key: |\n", "漢字", "👍🏽", "é", "\r\n", "\r",
    "\x1b[31m", "\x1b]8;;x\x07", "\x9b", "\u202e", "\u2028", "\x00", "\ud800", "\u200d", "\ufe0f",
)  # fmt: skip
DOCUMENTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("".join)


def stream(width: int = 60) -> MarkdownStream:
    return MarkdownStream(DARK, lambda: width)


def plain(text: str) -> str:
    return STYLE.sub("", text)


def feed_in_pieces(text: str, cuts: list[int], width: int = 30) -> str:
    """Return the output of a text that is cut at these positions, with a call of `render_tail` after each piece."""
    one = stream(width)
    positions = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    out = ""
    for begin, end in pairwise(positions):
        out += one.feed(text[begin:end])
        one.render_tail()
    return out + one.end()


@given(DOCUMENTS, st.lists(st.integers(0, 1000), max_size=20))
def test_rendering_is_the_same_for_any_pieces_of_a_reply(text: str, cuts: list[int]) -> None:
    assert feed_in_pieces(text, cuts) == render(text, DARK, 30)


@given(DOCUMENTS)
def test_rendering_is_the_same_character_by_character(text: str) -> None:
    assert feed_in_pieces(text, list(range(len(text)))) == render(text, DARK, 30)


@pytest.mark.slow
@settings(max_examples=25)  # each cuts 10,000 characters; the test before it tries four times as many texts
@given(st.sampled_from(["", "- ", "> ", "# ", "```\n", "a|b\n-|-\n"]), DOCUMENTS, st.sampled_from(["x", "ab ", "*a "]))
def test_rendering_of_very_long_lines_is_the_same_in_pieces(begin: str, text: str, filling: str) -> None:
    long = f"{begin}{filling * 1500}{text}{filling * 900}\n{text}"
    assert feed_in_pieces(long, list(range(0, len(long), 97))) == render(long, DARK, 30)


@given(DOCUMENTS, st.integers(1, 100))
def test_reply_emits_no_control_characters(text: str, width: int) -> None:
    one = stream(width)
    for shown in (one.feed(text), one.render_tail(), one.end()):
        left = STYLE.sub("", shown).replace("\n", "")
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", left)
        assert all(line.count("\x1b[0m") * 2 == line.count("\x1b[") for line in shown.split("\n"))


@given(DOCUMENTS)
def test_tail_shows_the_output_as_if_the_reply_ended_here(text: str) -> None:
    one = stream()
    one.feed(text)
    shown = one.render_tail()
    ends_in_marks = re.search(r"[`~]\s*$", text.replace("\x1b[31m", "")) is not None
    assert ends_in_marks or shown == "\n".join(one.end().removesuffix("\n").split("\n")[-20:])


@given(DOCUMENTS)
def test_final_output_consists_of_complete_lines(text: str) -> None:
    one = stream()
    assert all(final == "" or final.endswith("\n") for final in map(one.feed, text))


def test_a_paragraph_is_final_when_an_empty_line_ends_it() -> None:
    one = stream()
    assert one.feed("some **te") == ""
    assert plain(one.render_tail()) == "some **te"
    assert one.feed("xt**\n") == ""
    assert plain(one.render_tail()) == "some text"
    assert plain(one.feed("\n")) == "some text\n"
    assert one.render_tail() == ""


def test_list_item_is_final_when_the_next_starts() -> None:
    one = stream()
    assert one.feed("- one\n- tw") == ""
    assert plain(one.feed("o\n")) == "• one\n"
    assert plain(one.render_tail()) == "• two"


def test_code_is_final_line_by_line() -> None:
    one = stream()
    assert plain(one.feed("```python\n")) == "python\n"
    assert one.feed("x = ") == ""
    assert plain(one.render_tail()) == "x = "
    assert plain(one.feed("1\ny")) == "x = 1\n"
    assert plain(one.render_tail()) == "y"
    assert plain(one.end()) == "y\n"


def test_marks_that_may_end_a_fence_are_not_shown_as_code() -> None:
    one = stream()
    one.feed("```\nx\n``")
    assert one.render_tail() == ""
    assert plain(one.feed("x\n")) == "``x\n"


def test_carriage_return_at_the_end_of_a_piece_is_not_shown() -> None:
    one = stream()
    one.feed("text\r")
    assert one.render_tail() == "text"


def test_a_table_is_in_progress_until_it_ends() -> None:
    one = stream()
    assert one.feed("| a | b |\n|---|---|\n| 1 | 2 |\n| long") == ""
    assert plain(one.render_tail()).splitlines() == ["a    │ b", "─────┼──", "1    │ 2", "long │"]
    assert plain(one.feed("er | 3 |\n\n")).splitlines() == ["a      │ b", "───────┼──", "1      │ 2", "longer │ 3"]


def test_blank_line_before_a_block_is_emitted_with_the_block() -> None:
    one = stream()
    assert plain(one.feed("one\n\n")) == "one\n"
    one.feed("two")
    assert plain(one.render_tail()) == "\ntwo"
    assert plain(one.end()) == "\ntwo\n"


@pytest.mark.parametrize(
    "text", ["word " * 5000, "a|b\n-|-\n" + "1|2\n" * 25, "```\n" + "x" * 50_000, "- " + "a\n  " * 400]
)
def test_tail_is_limited_for_long_blocks(text: str) -> None:
    one = stream(80)
    one.feed(text)
    assert one.render_tail().count("\n") < 20
    assert len(plain(one.render_tail())) <= 20 * 81


def test_new_width_applies_to_the_block_in_progress() -> None:
    width = 40
    one = MarkdownStream(DARK, lambda: width)
    one.feed("one two three four")
    assert one.render_tail() == "one two three four"
    width = 10
    assert one.render_tail() == "one two\nthree four"


def test_new_reply_starts_after_end_or_reset() -> None:
    one = stream()
    one.feed("> ```\nx")
    one.reset()
    assert one.render_tail() == ""
    assert one.feed("a\n\n") == "a\n"
    assert one.end() == ""
    assert one.feed("b\n\n") == "b\n"


def test_control_characters_are_escaped_or_dropped() -> None:
    assert (
        plain(render("a\x1b[2Jb\x07 \u202ec &#x202e;\rd\r\n", DARK, 60)) == "a\\x1b[2Jb\\x07 \\u202ec \\u202e\\x0dd\n"
    )
