"""Coloured unified diffs."""

from talaria.cli.markdown.styled_text import to_ansi
from talaria.cli.markdown.themes import Theme
from talaria.cli.output.text import cut, escape_control

_INDENT = "  "
_TAB = 4


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
