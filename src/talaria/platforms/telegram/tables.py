"""Tables for a network that has none: drawn in letters of one width, or told row by row."""

import re
from unicodedata import combining, east_asian_width

from msgspec import Struct, field

from talaria.platforms.telegram.entities import Run, Style

# Wider than this, a telephone breaks the lines and the columns are lost.
WIDEST = 44
_SPACE = re.compile(r"\s+")
_BOLD = Style("bold")


class Row(Struct):
    """One row; each cell is some runs."""

    cells: list[list[Run]] = field(default_factory=list)


class Table(Struct):
    """A table, its head in the first row."""

    rows: list[Row] = field(default_factory=list)

    def drawn(self) -> str | None:
        """Return the table with its columns aligned, or ``None`` when it is too wide for that."""
        texts = [[_plain(cell) for cell in row.cells] for row in self.rows]
        widths = [max(map(_width, column)) for column in zip(*texts, strict=True)]
        if sum(widths) + 3 * (len(widths) - 1) > WIDEST:
            return None
        lines = [
            " │ ".join(text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in texts
        ]
        lines.insert(1, "─┼─".join("─" * width for width in widths))
        return "\n".join(lines)

    def told(self) -> list[list[Run]]:
        """Return a line for each row: the first cell, then the others behind the names of their columns."""
        head, *rows = self.rows
        if not rows:
            return [[Run(", ".join(filter(None, map(_plain, head.cells))), frozenset({_BOLD}))]]
        names = [_plain(cell) for cell in head.cells]
        return [_told(row, names) for row in rows]


def _told(row: Row, names: list[str]) -> list[Run]:
    runs = [Run("• "), *(Run(run.text, run.styles | {_BOLD}) if _is_text(run) else run for run in row.cells[0])]
    for name, cell in zip(names[1:], row.cells[1:], strict=True):
        if _plain(cell):
            runs += [Run("; " if len(runs) > len(row.cells[0]) + 1 else ": "), Run(f"{name}: " if name else ""), *cell]
    return [run for run in runs if run.text]


def _is_text(run: Run) -> bool:
    return not any(style.kind == "code" for style in run.styles)


def _plain(cell: list[Run]) -> str:
    return _SPACE.sub(" ", "".join(run.text for run in cell)).strip()


def _width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)
