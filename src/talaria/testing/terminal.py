"""A terminal in memory: what a person would see of a program's output."""

import codecs
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import pyte
from msgspec import Struct
from pyte.modes import DECTCEM
from pyte.screens import Char, Cursor, Margins, StaticDefaultDict, wcwidth

Line = StaticDefaultDict[int, Char]
_COLOUR_ARGUMENTS = {5: 1, 2: 3}
_UNDERLINE_COLOUR = 58
_DIM, _NEITHER_BOLD_NOR_DIM = 2, 22
_WHOLE = re.compile(
    r"\x1b(?:"
    r"\[([<-?]?)([0-9:;]*)([ -/]*)([@-~])"  # a control sequence: private mark, numbers, more marks, what to do
    r"|\]([^\x07\x1b]*)(?:\x07|\x1b\\)"  # a command to the system: title, hyperlink, clipboard
    r"|[PX^_][^\x1b]*\x1b\\"  # strings for devices that nobody has
    r"|[ -/]*[0-OQ-WYZ\\`-~]"  # everything short
    r")"
)
_PARTIAL = re.compile(r"\x1b(?:\[[<-?]?[0-9:;]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")


class Cell(Struct, frozen=True):
    """One cell, ``width`` columns wide; a colour is ``default``, a name or six hexadecimal digits."""

    text: str = " "
    width: int = 1
    colour: str = "default"
    background: str = "default"
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False
    struck: bool = False
    reversed: bool = False


class Dim(Char):
    """A dim character, which pyte doesn't support."""


def text_of(line: Line, columns: int) -> str:
    """Return what a line says, without the blanks at its end."""
    return "".join(text for text, _, _ in _iterate_characters(line, columns)).rstrip()


def cells_of(line: Line, columns: int) -> Iterator[Cell]:
    """Yield the cells of a line, wide characters once."""
    for text, width, char in _iterate_characters(line, columns):
        yield Cell(
            text,
            width,
            _correct_colour(char.fg),
            _correct_colour(char.bg),
            bold=char.bold,
            dim=isinstance(char, Dim),
            italic=char.italics,
            underlined=char.underscore,
            struck=char.strikethrough,
            reversed=char.reverse,
        )


def _iterate_characters(line: Line, columns: int) -> Iterator[tuple[str, int, Char]]:
    """Yield text, width and attributes; half a wide character, overwritten by another, is a blank."""
    column = 0
    while column < columns:
        char = line[column]
        text, width = char.data, 1
        if text and not text.isascii() and wcwidth(text[0]) == 2:
            whole = column + 1 < columns and not line[column + 1].data
            text, width = (text, 2) if whole else (" ", 1)
        yield text or " ", width, char
        column += width


def _correct_colour(name: str) -> str:
    """Return a colour by its usual name: pyte's yellow is brown, and one of its names is misspelt."""
    return name.replace("brown", "yellow").replace("bfight", "bright")


class ControlSequence(Struct, frozen=True):
    """One control sequence, raw and parsed; ``final`` is empty for all but those with numbers."""

    written: str
    private: str = ""
    numbers: str = ""
    marks: str = ""
    final: str = ""
    system: str = ""


class SequenceSplitter:
    """Stores the sequence that one piece of output started and the next will finish."""

    def __init__(self) -> None:
        self._partial = ""

    def split(self, output: str) -> Iterator[str | ControlSequence]:
        """Yield text and sequences in order. An escape that begins nothing known is dropped."""
        output = self._partial + output
        self._partial = ""
        position = 0
        while (escape := output.find("\x1b", position)) >= 0:
            if escape > position:
                yield output[position:escape]
            found = _WHOLE.match(output, escape)
            if found:
                private, numbers, marks, final, system = (group or "" for group in found.groups())
                yield ControlSequence(found[0], private, numbers, marks, final, system)
            elif _PARTIAL.match(output, escape):
                self._partial = output[escape:]
                return
            position = found.end() if found else escape + 1
        if position < len(output):
            yield output[position:]


class DrawingScreen(pyte.Screen):
    """A screen that executes drawing commands; ``answer`` gets its replies to the program.

    ``scrolled_out`` has the lines that left it at the top.
    """

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        self.scrolled_out: list[str] = []
        self._answer = answer
        super().__init__(columns, rows)

    def save_cursor(self) -> None:
        """Save one position: the last one."""
        self.savepoints.clear()
        super().save_cursor()

    def restore_cursor(self) -> None:
        """Return to the saved position, any number of times."""
        saved = [point._replace(cursor=copy(point.cursor)) for point in self.savepoints]
        super().restore_cursor()
        self.savepoints = saved

    def draw(self, data: str) -> None:
        """Draw text; marks without a width join the character before them."""
        if data.isascii() and data.isprintable():
            super().draw(data)
            return
        for character in data:
            width = wcwidth(character)
            if width == 0:
                self._combine(character)
            elif width > 0:
                if width > self.columns - self.cursor.x > 0:
                    self.carriage_return()
                    self.linefeed()
                super().draw(character)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Erase with the background's colour alone."""
        if how < 3:
            with self._blank_attributes():
                super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *_: Any, **__: Any) -> None:
        """Erase the display, or, with 3 as in xterm, the scroll-back."""
        if how == 3:
            self.scrolled_out.clear()
        elif how < 3:
            with self._blank_attributes():
                super().erase_in_display(how)

    def erase_characters(self, count: int | None = None) -> None:
        """Erase with the background's colour alone."""
        with self._blank_attributes():
            super().erase_characters(count)

    def select_graphic_rendition(self, *attrs: int, **_: Any) -> None:
        """Choose colours and the rest, dim included."""
        known, dim = _split_renditions(attrs or (0,), isinstance(self.cursor.attrs, Dim))
        if known:  # without any, pyte would forget all that was chosen before
            super().select_graphic_rendition(*known)
        self.cursor.attrs = (Dim if dim else Char)(*self.cursor.attrs)

    def report_device_status(self, mode: int, **private: bool) -> None:
        """Say where the cursor is, or that all is well."""
        if mode == 6:
            position = f"{self.cursor.y + 1};{min(self.cursor.x, self.columns - 1) + 1}"
            self._answer(f"\x1b[{'?' if private else ''}{position}R")
        elif mode == 5:
            self._answer("\x1b[0n")

    def write_process_input(self, data: str) -> None:
        """Say what pyte has to say."""
        self._answer(data)

    def _combine(self, mark: str) -> None:
        line = self.buffer[self.cursor.y]
        column = self.cursor.x - 1
        if column > 0 and not line[column].data:
            column -= 1
        if column >= 0:
            line[column] = line[column]._replace(data=line[column].data + mark)

    @contextmanager
    def _blank_attributes(self) -> Iterator[None]:
        attributes = self.cursor.attrs
        self.cursor.attrs = Char(" ", bg=attributes.bg)
        try:
            yield
        finally:
            self.cursor.attrs = attributes


def _split_renditions(attributes: tuple[int, ...], dim: bool) -> tuple[list[int], bool]:
    """Return the attributes that pyte knows, and whether text is dim behind them all."""
    known: list[int] = []
    position = 0
    while position < len(attributes):
        one = attributes[position]
        length = 1
        if one in {pyte.graphics.FG_256, pyte.graphics.BG_256, _UNDERLINE_COLOUR}:
            length = 2 + _COLOUR_ARGUMENTS.get((*attributes, 0)[position + 1], 0)
        if one == _DIM or one in {0, _NEITHER_BOLD_NOR_DIM}:
            dim = one == _DIM
        if one != _UNDERLINE_COLOUR:
            known += attributes[position : position + length]
        position += length
    return known, dim


BELL = "\a"
_PRIVATE = 5  # pyte keeps private modes this many bits higher
_ALTERNATE = {47, 1047, 1049}
_BRACKETED_PASTE = 2004 << _PRIVATE
_CURSOR_KEYS = 1 << _PRIVATE
_SET, _RESET = "h", "l"
_COLUMNS_MODE = 3  # 132 columns: terminals of today do not obey
_KNOWN_FINALS = frozenset(pyte.Stream.csi)
_NUMBERS = {"H": 2, "f": 2, "r": 2, "h": 9, "l": 9}  # what may have more than one; pyte fails on too many
_KNOWN_ESCAPES = frozenset(f"\x1b{letter}" for letter in pyte.Stream.escape)


class Terminal(DrawingScreen):
    """Processes a program's output: executes known sequences, drops others, stores what scrolls out.

    Like xterm it doesn't rewrap lines when its width changes. ``answer`` gets its replies to the program. ``alerts``
    has a `BELL` for each bell, and the text of each desktop notification (OSC 9).
    """

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        self._main_screen: tuple[dict[int, Line], Cursor] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter = SequenceSplitter()
        self.alerts: list[str] = []
        super().__init__(columns, rows, answer)
        self._stream = pyte.Stream(self)

    @property
    def rows(self) -> list[str]:
        """The visible lines, without trailing blanks."""
        return [self.row(number) for number in range(self.lines)]

    @property
    def cells(self) -> list[list[Cell]]:
        """The visible cells, with colours."""
        return [list(cells_of(self.buffer[row], self.columns)) for row in range(self.lines)]

    @property
    def wants_bracketed_paste(self) -> bool:
        """Return whether the program wants to know where a paste begins and ends."""
        return _BRACKETED_PASTE in self.mode

    @property
    def application_keys(self) -> bool:
        """Return whether the program wants the arrows as an application's."""
        return _CURSOR_KEYS in self.mode

    def row(self, number: int) -> str:
        """Return one visible line."""
        return text_of(self.buffer[number], self.columns)

    def feed(self, output: bytes) -> None:
        """Take what the program sent."""
        for piece in self._splitter.split(self._decoder.decode(output)):
            if isinstance(piece, str):
                self._stream.feed(piece)
            elif piece.final:
                self._apply_sequence(piece)
            elif piece.written in _KNOWN_ESCAPES:
                self._stream.feed(piece.written)
            elif piece.system[:2] in {"0;", "2;"}:
                self.set_title(piece.system[2:])
            elif piece.system[:2] == "9;":
                self.alerts.append(piece.system[2:])

    def bell(self, *_args: object) -> None:
        """Remember that it rang."""
        self.alerts.append(BELL)

    def reset(self) -> None:
        """Reset the terminal, with the cursor at the start."""
        self._main_screen = None
        super().reset()

    def index(self) -> None:
        """Go a line down, and remember what that moves out at the top."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y == bottom and top == 0 and self._main_screen is None:
            self.scrolled_out.append(self.row(0))
        super().index()

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size; the cursor's line stays on the screen, lines that do not fit leave at the top."""
        lines, columns = lines or self.lines, columns or self.columns
        self.margins = None
        for _ in range(self.cursor.y - lines + 1):
            self._scroll(1)
            self.cursor.y -= 1
        for row in [row for row in self.buffer if row >= lines]:
            del self.buffer[row]
        for line in self.buffer.values():
            for column in [column for column in line if column >= columns]:
                del line[column]
        self.lines, self.columns = lines, columns
        self.tabstops = set(range(8, columns, 8))
        self.ensure_hbounds()
        self.ensure_vbounds()

    def _apply_sequence(self, sequence: ControlSequence) -> None:
        numbers = [int(number or 0) for number in sequence.numbers.replace(":", ";").split(";")]
        match sequence.private, sequence.marks, sequence.final:
            case "", "", "m":
                self.select_graphic_rendition(*_resolve_colons(sequence.numbers))
            case "", "", "s":
                self.save_cursor()
            case "", "", "u":
                self.restore_cursor()
            case "", "", "S":
                self._scroll(numbers[0] or 1)
            case "", "", final if final in _KNOWN_FINALS:
                written = ";".join(map(str, numbers[: _NUMBERS.get(final, 1)]))
                self._stream.feed(f"\x1b[{written}{final}")
            case "?", "", "h" | "l" as final:
                self._switch(numbers, final)
            case "?", "", "n":
                self.report_device_status(numbers[0], private=True)
            case ">", "", "c":
                self.write_process_input("\x1b[>0;0;0c")
            case _:
                pass

    def _switch(self, modes: list[int], final: str) -> None:
        modes = [mode for mode in modes if mode != _COLUMNS_MODE]
        (self.set_mode if final == _SET else self.reset_mode)(*modes, private=True)
        if not _ALTERNATE & set(modes):
            return
        if final == _SET and self._main_screen is None:
            self._main_screen = dict(self.buffer), self.cursor
            self.buffer.clear()
            self.cursor = Cursor(0, 0)
        elif final == _RESET and self._main_screen is not None:
            lines, self.cursor = self._main_screen
            self._main_screen = None
            self.buffer.clear()
            self.buffer.update(lines)
            self.ensure_vbounds()
        self.cursor.hidden = DECTCEM not in self.mode

    def _scroll(self, count: int) -> None:
        row = self.cursor.y
        self.cursor.y = (self.margins or Margins(0, self.lines - 1)).bottom
        for _ in range(count):
            self.index()
        self.cursor.y = row


def _resolve_colons(numbers: str) -> Iterator[int]:
    """Yield the numbers of a rendition, with colons, which pyte does not know, resolved."""
    for group in numbers.split(";"):
        first, *more = group.split(":")
        if first == "4" and more:
            yield 24 if more[0] == "0" else 4
        elif more[:1] == ["2"]:
            yield from (int(number or 0) for number in [first, "2", *more[-3:]])
        else:
            yield from (int(number or 0) for number in [first, *more])
