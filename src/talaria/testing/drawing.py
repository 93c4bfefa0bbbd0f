"""pyte's screen, mended where it differs from the terminals that people use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import pyte
from pyte.screens import Char, wcwidth

from talaria.testing.cells import Dim

_COLOUR_ARGUMENTS = {5: 1, 2: 3}
_UNDERLINE_COLOUR = 58
_DIM, _NEITHER_BOLD_NOR_DIM = 2, 22


class Drawing(pyte.Screen):
    """A screen that takes drawing commands; ``answer`` gets what it has to say to the program.

    ``scrolled_out`` has the lines that left it at the top.
    """

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        self.scrolled_out: list[str] = []
        self._answer = answer
        super().__init__(columns, rows)

    def save_cursor(self) -> None:
        """Remember one place: the last one."""
        self.savepoints.clear()
        super().save_cursor()

    def restore_cursor(self) -> None:
        """Go back to the remembered place, as often as wanted."""
        kept = [point._replace(cursor=copy(point.cursor)) for point in self.savepoints]
        super().restore_cursor()
        self.savepoints = kept

    def draw(self, data: str) -> None:
        """Draw text; marks without a width join the character before them."""
        if data.isascii() and data.isprintable():
            super().draw(data)
            return
        for character in data:
            width = wcwidth(character)
            if width == 0:
                self._join(character)
            elif width > 0:
                if width > self.columns - self.cursor.x > 0:
                    self.carriage_return()
                    self.linefeed()
                super().draw(character)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Erase with the background's colour alone."""
        if how < 3:
            with self._bare():
                super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *_: Any, **__: Any) -> None:
        """Erase what is shown, or, as xterm does with 3, what has scrolled out."""
        if how == 3:
            self.scrolled_out.clear()
        elif how < 3:
            with self._bare():
                super().erase_in_display(how)

    def erase_characters(self, count: int | None = None) -> None:
        """Erase with the background's colour alone."""
        with self._bare():
            super().erase_characters(count)

    def select_graphic_rendition(self, *attrs: int, **_: Any) -> None:
        """Choose colours and the rest, dim included."""
        known, dim = _renditions(attrs or (0,), isinstance(self.cursor.attrs, Dim))
        if known:  # without any, pyte would forget all that was chosen before
            super().select_graphic_rendition(*known)
        self.cursor.attrs = (Dim if dim else Char)(*self.cursor.attrs)

    def report_device_status(self, mode: int, **private: bool) -> None:
        """Say where the cursor is, or that all is well."""
        if mode == 6:
            place = f"{self.cursor.y + 1};{min(self.cursor.x, self.columns - 1) + 1}"
            self._answer(f"\x1b[{'?' if private else ''}{place}R")
        elif mode == 5:
            self._answer("\x1b[0n")

    def write_process_input(self, data: str) -> None:
        """Say what pyte has to say."""
        self._answer(data)

    def _join(self, mark: str) -> None:
        line = self.buffer[self.cursor.y]
        column = self.cursor.x - 1
        if column > 0 and not line[column].data:
            column -= 1
        if column >= 0:
            line[column] = line[column]._replace(data=line[column].data + mark)

    @contextmanager
    def _bare(self) -> Iterator[None]:
        attributes = self.cursor.attrs
        self.cursor.attrs = Char(" ", bg=attributes.bg)
        try:
            yield
        finally:
            self.cursor.attrs = attributes


def _renditions(attributes: tuple[int, ...], dim: bool) -> tuple[list[int], bool]:
    """Return the attributes that pyte knows, and whether text is dim behind them all."""
    known: list[int] = []
    place = 0
    while place < len(attributes):
        one = attributes[place]
        length = 1
        if one in {pyte.graphics.FG_256, pyte.graphics.BG_256, _UNDERLINE_COLOUR}:
            length = 2 + _COLOUR_ARGUMENTS.get((*attributes, 0)[place + 1], 0)
        if one == _DIM or one in {0, _NEITHER_BOLD_NOR_DIM}:
            dim = one == _DIM
        if one != _UNDERLINE_COLOUR:
            known += attributes[place : place + length]
        place += length
    return known, dim
