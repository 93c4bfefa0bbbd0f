"""Code in its colours while it arrives."""

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


def shown(language: str, *lines: str) -> list[str]:
    code = Highlighter(language, MONO)
    return [to_ansi(code.line(line)) for line in lines]


def styles(language: str, *lines: str) -> list[set[str]]:
    """Return the styles that stand in each of these lines."""
    code = Highlighter(language, DARK)
    return [{style for text, style in code.line(line) if text.strip()} for line in lines]


def test_a_fence_has_the_name_of_its_language_above_it() -> None:
    assert render("```python\nif x: pass\n```", MONO, 60) == "python\n\x1b[1mif\x1b[0m x: \x1b[1mpass\x1b[0m\n"


@pytest.mark.parametrize("info", ["", "text", "no-such-language"])
def test_code_in_an_unknown_language_is_plain(info: str) -> None:
    assert render(f"```{info}\nif x:\n```", MONO, 60).splitlines()[-1] == "if x:"


@pytest.mark.parametrize("info", ["python title=x", " Python ", "{.python}", "{python}"])
def test_more_than_a_name_may_stand_after_the_marks(info: str) -> None:
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
    behind, alone = styles("c", "/* a", "*/ return x;")[1], styles("c", "return x;")[0]
    assert alone < behind


def test_a_mark_in_a_text_begins_no_comment() -> None:
    assert shown("c", 'x = "/*";', "return;")[1] == shown("c", "return;")[0]


def test_blocks_of_yaml_are_known_on_later_lines() -> None:
    first, _, later = styles("yaml", "key: |", "  other: text", "key: 1")
    assert styles("yaml", "key: |", "  other: text")[1] != styles("yaml", "other: text")[0]
    assert first & later


@given(st.sampled_from(LANGUAGES), st.lists(st.text("ab1 '\"`/*<>-#{}[]()=:;|\\$&!\n%@\t", max_size=30), max_size=6))
def test_colours_never_change_the_code(language: str, texts: list[str]) -> None:
    code = Highlighter(language, DARK)
    for line in "\n".join(texts).split("\n"):
        code.copy().line(line[:3])
        assert "".join(text for text, _ in code.line(line)) == line


def test_long_lines_and_empty_ones_are_left_as_they_are() -> None:
    code = "x = '" + "a" * 3000 + "'\n\n\ny"
    text = re.sub(r"\x1b\[[0-9;]*m", "", render(f"```python\n{code}\n```", DARK, 40))
    assert text == f"python\n{code}\n"


def test_code_of_an_item_stands_below_its_text() -> None:
    assert render("1. a\n   ```\n   x\n\n     y\n   ```\n2. b", MONO, 40) == "1. a\n   x\n\n     y\n2. b\n"


def test_a_fence_without_an_end_ends_with_the_reply() -> None:
    assert render("```\nx\n\n", MONO, 40) == "x\n\n"


def test_changes_are_distinguished() -> None:
    added, removed = styles("diff", "+new", "-old")
    assert (added, removed) == ({DARK.added}, {DARK.removed})
