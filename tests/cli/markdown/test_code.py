"""Syntax highlighting of streamed code."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.cli.markdown.code import Highlighter
from talaria.cli.markdown.stream import render
from talaria.cli.markdown.styled_text import THEMES, to_ansi

DARK, MONO = THEMES["dark"], THEMES["mono"]
LANGUAGES = [
    "python",
    "c",
    "javascript",
    "bash",
    "yaml",
    "json",
    "html",
    "rust",
    "ruby",
    "sql",
    "diff",
    "console",
    "go",
]


def highlight(language: str, *lines: str) -> list[str]:
    code = Highlighter(language, MONO)
    return [to_ansi(code.highlight_line(line)) for line in lines]


def styles(language: str, *lines: str) -> list[set[str]]:
    """Return the styles in each of these lines."""
    code = Highlighter(language, DARK)
    return [{style for text, style in code.highlight_line(line) if text.strip()} for line in lines]


def test_fenced_code_has_the_name_of_its_language_above_it() -> None:
    assert render("```python\nif x: pass\n```", MONO, 60) == "python\n\x1b[1mif\x1b[0m x: \x1b[1mpass\x1b[0m\n"


@pytest.mark.parametrize("info", ["", "text", "no-such-language"])
def test_code_in_an_unknown_language_is_plain(info: str) -> None:
    assert render(f"```{info}\nif x:\n```", MONO, 60).splitlines()[-1] == "if x:"


@pytest.mark.parametrize("info", ["python title=x", " Python ", "{.python}", "{python}"])
def test_language_is_found_in_a_longer_info_string(info: str) -> None:
    assert "\x1b[1mif\x1b[0m" in render(f"```{info}\nif x: pass\n```", MONO, 60)


@pytest.mark.parametrize(
    ("language", "lines"),
    [
        ("python", ['"""A text', "if this were code", 'it would be bold"""']),
        ("c", ["/* a comment", "if this were code", "it would be bold */"]),
        ("javascript", ["/* a comment", "if this were code", "*/"]),
        ("css", ["/* a comment", "a { color: red }", "*/"]),
        ("go", ["`raw", "if this were code", "`"]),
        ("html", ["<!-- a comment", "<b>x</b>", "-->"]),
        ("rust", ["/* a comment", "if this were code", "*/"]),
    ],
)
def test_colours_continue_over_lines(language: str, lines: list[str]) -> None:
    found = styles(language, *lines)
    assert len(found[1]) == 1
    assert found == [found[0]] * 3


def test_code_continues_after_a_comment() -> None:
    after_comment, alone = styles("c", "/* a", "*/ return x;")[1], styles("c", "return x;")[0]
    assert alone < after_comment


def test_comment_mark_in_a_string_starts_no_comment() -> None:
    assert highlight("c", 'x = "/*";', "return;")[1] == highlight("c", "return;")[0]


def test_yaml_block_continues_on_later_lines() -> None:
    first, _, later = styles("yaml", "key: |", "  other: text", "key: 1")
    assert styles("yaml", "key: |", "  other: text")[1] != styles("yaml", "other: text")[0]
    assert first & later


@given(st.sampled_from(LANGUAGES), st.lists(st.text("ab1 '\"`/*<>-#{}[]()=:;|\\$&!\n%@\t", max_size=30), max_size=6))
def test_colours_never_change_the_code(language: str, texts: list[str]) -> None:
    code = Highlighter(language, DARK)
    for line in "\n".join(texts).split("\n"):
        code.copy().highlight_line(line[:3])
        assert "".join(text for text, _ in code.highlight_line(line)) == line


def test_long_and_empty_lines_are_unchanged() -> None:
    code = "x = '" + "a" * 3000 + "'\n\n\ny"
    text = re.sub(r"\x1b\[[0-9;]*m", "", render(f"```python\n{code}\n```", DARK, 40))
    assert text == f"python\n{code}\n"


def test_code_of_a_list_item_is_shown_below_its_text() -> None:
    assert render("1. a\n   ```\n   x\n\n     y\n   ```\n2. b", MONO, 40) == "1. a\n   x\n\n     y\n2. b\n"


def test_unclosed_fence_ends_with_the_reply() -> None:
    assert render("```\nx\n\n", MONO, 40) == "x\n\n"


def test_added_and_removed_lines_of_a_diff_have_different_styles() -> None:
    added, removed = styles("diff", "+new", "-old")
    assert (added, removed) == ({DARK.added}, {DARK.removed})
