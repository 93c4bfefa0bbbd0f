"""Unified diffs in colour."""

from talaria.cli.cells import cut, harmless
from talaria.cli.rendering.runs import ansi
from talaria.cli.rendering.themes import Theme

_INDENT = "  "
_TAB = 4


def render_diff(diff: str, theme: Theme, width: int, *, most: int = 0) -> str:
    """Return a diff as lines for a terminal, each cut to ``width`` columns.

    With ``most`` only so many lines are shown, then how many there are in all.
    """
    lines = diff.split("\n")
    folded = most and len(lines) > most + 1
    shown = [_render_line(line, theme, width) for line in (lines[:most] if folded else lines)]
    if folded:
        note = f"{_INDENT}… {len(lines) - most:,} more lines, Ctrl-O shows them"
        shown.append(ansi([(cut(note, width - 1), theme.dim)]))
    return "".join(f"{line}\n" for line in shown)


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    lines = diff.split("\n")
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def _render_line(line: str, theme: Theme, width: int) -> str:
    style = {"+": theme.added, "-": theme.removed, "@": theme.dim}.get(line[:1], "")
    plain = harmless(line.expandtabs(_TAB)).replace("\n", " ")
    return ansi([(cut(f"{_INDENT}{plain}", width - 1), style)])
