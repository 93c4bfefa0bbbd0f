"""Notices, quotes and diffs around a reply."""

import re

import pytest

from talaria.cli.chat.tui.prompt import resolve_theme
from talaria.cli.markdown.stream import count_changes, render, render_diff, render_notice, wrap_text
from talaria.cli.markdown.styled_text import THEMES

DARK = THEMES["dark"]


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_plain_text_wraps_at_words_and_preserves_every_character() -> None:
    text = "rm -rf  a\n    indented and long enough to wrap"
    lines = wrap_text(text, "", 24, first="❯ ", rest="  ").splitlines()
    assert lines == ["❯ rm -rf  a", "      indented and long", "  enough to wrap"]


def test_a_word_wider_than_the_screen_is_cut() -> None:
    assert wrap_text("x" * 12, "", 9).splitlines() == ["x" * 8, "x" * 4]


def test_control_characters_are_escaped() -> None:
    assert wrap_text("a\x1b[2Jb\u202e", "", 40) == "a\\x1b[2Jb\\u202e\n"


def test_notices_are_markdown_wrapped_at_words() -> None:
    lines = bare(render_notice("The budget is used up. `/goal resume` continues.", DARK, DARK.dim, 30)).splitlines()
    assert lines == ["The budget is used up. /goal", "resume continues."]


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"TERM": "xterm-256color"}, f"\x1b[{DARK.inline_code}m/resume My boat\x1b[0m brings it back.\n"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "`/resume My boat` brings it back.\n"),
        ({"TERM": "vt220"}, "`/resume My boat` brings it back.\n"),
    ],
)
def test_commands_have_backticks_without_colours(environment: dict[str, str], shown: str) -> None:
    theme = THEMES[resolve_theme("auto", environment)]
    assert render("`/resume My boat` brings it back.", theme, 80) == shown


def test_long_diff_is_folded_with_the_number_of_hidden_lines() -> None:
    diff = "\n".join(["@@ -1 +1,9 @@", *(f"+line {number}" for number in range(9))])
    shown = render_diff(diff, DARK, 60, most=4).splitlines()
    assert bare(shown[-1]) == "  … 6 more lines, Ctrl-O shows them"
    assert shown[1] == f"\x1b[{DARK.added}m  +line 0\x1b[0m"
    assert len(render_diff(diff, DARK, 60).splitlines()) == 10
    assert count_changes(diff) == (9, 0)
