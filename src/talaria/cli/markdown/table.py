"""Borderless tables with aligned columns that fit the terminal."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from talaria.cli.markdown.inline import read_inline
from talaria.cli.markdown.styled_text import StyledLine, StyledRun, Theme, line_width, strip_line, wrap

# From so many rows or characters on, the widths are fixed: later rows are shown at once and must fit.
_SETTLED_ROWS = 30
_SETTLED_SIZE = 3000
_LONGEST_CELL = 1000
_NARROWEST = 6
_MOST_COLUMNS = 30
_GAP = " │ "

_IS_RULE = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*").fullmatch
_FIND_CELL = re.compile(r"(?:[^|\\]|\\.|\\$)*", re.DOTALL)


def split_row(text: str) -> list[str]:
    """Return the cells of a row; an escaped bar belongs to its cell."""
    text = text.strip().removeprefix("|")
    cells = [found.strip().replace("\\|", "|") for found in _split_cells(text)]
    return cells[:-1] if len(cells) > 1 and not cells[-1] and text.endswith("|") else cells


def read_alignment(text: str) -> list[str]:
    """Return ``<``, ``^`` or ``>`` for each column of a delimiter row; empty for other rows."""
    text = text.strip()
    if "-" not in text or not _IS_RULE(text):
        return []
    return ["^" if one[0] == one[-1] == ":" else ">" if one[-1] == ":" else "<" for one in split_row(text) if one]


class _Row(Struct, frozen=True):
    cells: tuple[list[StyledRun], ...]
    widths: tuple[int, ...]


class Table:
    """Table that is read row by row."""

    def __init__(self, head: Sequence[str], alignment: Sequence[str], theme: Theme) -> None:
        self._theme = theme
        self._alignment = alignment[:_MOST_COLUMNS]
        self._head = self._read_row(head, theme.bold)
        self._rows: list[_Row] = []
        self._size = 0
        self._widths: list[int] | None = None

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self._alignment)

    def add(self, cells: Sequence[str]) -> None:
        """Add a row."""
        self._rows.append(self._read_row(cells, ""))
        self._size += sum(map(len, cells))

    def copy(self) -> "Table":
        """Return an independent copy."""
        other = Table.__new__(Table)
        other.__dict__.update(self.__dict__, _rows=list(self._rows))
        return other

    def take_lines(self, width: int, *, ended: bool) -> Iterator[StyledLine]:
        """Yield the final lines: none until the widths are fixed, all once it has ended."""
        settled = len(self._rows) >= _SETTLED_ROWS or self._size >= _SETTLED_SIZE
        if not (ended or settled or self._widths is not None):
            return
        begins = self._widths is None
        if self._widths is None:
            self._widths = self._fit_widths(width)
        show: Callable[[_Row], Iterator[StyledLine]] = (
            self._render_row if self._widths else partial(self._render_record, width=width)
        )
        if begins and self._widths:
            yield from self._render_row(self._head)
            yield [("─┼─".join("─" * width for width in self._widths), self._theme.dim)]
        for number, row in enumerate(self._rows):
            if not self._widths and (number or not begins):
                yield []
            yield from show(row)
        self._rows = []

    def _read_row(self, cells: Sequence[str], base: str) -> _Row:
        padded = [*cells, *[""] * self.columns][: self.columns]
        read = tuple(read_inline(_shorten(cell), self._theme, base) for cell in padded)
        return _Row(read, tuple(map(line_width, read)))

    def _fit_widths(self, width: int) -> list[int]:
        """Return the width of each column; empty if they do not fit."""
        natural = [max(1, *(row.widths[i] for row in [self._head, *self._rows])) for i in range(self.columns)]
        room = width - len(_GAP) * (self.columns - 1)
        if sum(natural) <= room:
            return natural
        if room < sum(min(_NARROWEST, one) for one in natural):
            return []
        fitted = list(natural)
        open_columns = sorted(range(self.columns), key=natural.__getitem__)
        while open_columns:
            share = room // len(open_columns)
            column = open_columns.pop(0)
            fitted[column] = min(natural[column], max(1, share))
            room -= fitted[column]
        return fitted

    def _render_row(self, row: _Row) -> Iterator[StyledLine]:
        assert self._widths is not None
        wrapped = [
            [cell] if size <= width else wrap(cell, width, cut_words=True)
            for cell, size, width in zip(row.cells, row.widths, self._widths, strict=True)
        ]
        for number in range(max(map(len, wrapped))):
            line: StyledLine = []
            for i, lines in enumerate(wrapped):
                if i:
                    line.append((_GAP, self._theme.dim))
                part = lines[number] if number < len(lines) else []
                line += _align(part, self._widths[i], self._alignment[i])
            yield strip_line(line)

    def _render_record(self, row: _Row, width: int) -> Iterator[StyledLine]:
        """Render a row of a table that is too wide, one cell per line."""
        for name, cell in zip(self._head.cells, row.cells, strict=True):
            yield from wrap([*name, (": ", self._theme.bold), *cell], width)


def _split_cells(text: str) -> Iterator[str]:
    at = 0
    while found := _FIND_CELL.match(text, at):
        yield found[0]
        at = found.end() + 1
        if found.end() >= len(text):
            return


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


def _align(part: StyledLine, width: int, alignment: str) -> StyledLine:
    gap = width - line_width(part)
    left = gap if alignment == ">" else gap // 2 if alignment == "^" else 0
    return [(" " * left, ""), *part, (" " * (gap - left), "")]
