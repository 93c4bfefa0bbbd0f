"""Texts around a reply: notices, errors, user messages and approval requests, wrapped at words, and diffs."""

from collections.abc import Iterator

from talaria.cli.markdown.stream import render
from talaria.cli.markdown.styled_text import measure_width, to_ansi
from talaria.cli.markdown.themes import Theme
from talaria.cli.output.text import cut, escape_control

_TAB = 4
_NARROWEST = 4
_RESET = "\x1b[0m"
_INDENT = "  "


def wrap_text(text: str, style: str, width: int, *, first: str = "", rest: str = "") -> str:
    """Return plain text as lines in one style, with control characters escaped.

    The first line starts with ``first``, all others with ``rest``.
    """
    available = max(_NARROWEST, width - 1 - max(len(first), len(rest)))
    lines = [part for line in escape_control(text).split("\n") for part in _fold(line.expandtabs(_TAB), available)]
    marked = [f"{rest if index else first}{line}".rstrip() for index, line in enumerate(lines)]
    return "".join(f"{to_ansi([(line, style)])}\n" for line in marked)


def render_notice(text: str, theme: Theme, style: str, width: int) -> str:
    """Return Markdown as lines whose plain text has this style."""
    rendered = render(text, theme, width)
    if not style:
        return rendered
    begin = f"\x1b[{style}m"
    lines = rendered.rstrip("\n").split("\n")
    return "".join(f"{begin}{line.replace(_RESET, _RESET + begin)}{_RESET}\n" if line else "\n" for line in lines)


def _fold(line: str, available: int) -> Iterator[str]:
    """Split a line into parts of at most ``available`` columns, after a space if possible."""
    while (end := _count_fitting(line, available)) < len(line):
        at = line.rfind(" ", 0, end + 1) + 1 or end
        yield line[:at]
        line = line[at:]
    yield line


def _count_fitting(line: str, available: int) -> int:
    """Return how many characters fit in ``available`` columns, at least one."""
    used = 0
    for index, character in enumerate(line):
        used += measure_width(character)
        if used > available:
            return max(1, index)
    return len(line)


def render_diff(diff: str, theme: Theme, width: int, *, most: int = 0) -> str:
    """Return a diff as terminal lines, each cut to ``width`` columns.

    ``most`` limits the number of lines; the total follows.
    """
    lines = diff.split("\n")
    is_folded = most and len(lines) > most + 1
    shown = [_render_line(line, theme, width) for line in (lines[:most] if is_folded else lines)]
    if is_folded:
        note = f"{_INDENT}… {len(lines) - most:,} more lines, Ctrl-O shows them"
        shown.append(to_ansi([(cut(note, width - 1), theme.dim)]))
    return "".join(f"{line}\n" for line in shown)


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    lines = diff.split("\n")
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def _render_line(line: str, theme: Theme, width: int) -> str:
    style = {"+": theme.added, "-": theme.removed, "@": theme.dim}.get(line[:1], "")
    plain = escape_control(line.expandtabs(_TAB)).replace("\n", " ")
    return to_ansi([(cut(f"{_INDENT}{plain}", width - 1), style)])
