"""A terminal in memory: what a person would see of a program's output."""

import codecs
from collections.abc import Callable, Iterator

import pyte
from pyte.modes import DECTCEM
from pyte.screens import Cursor, Margins

from talaria.testing.cells import Cell, Line, cells_of, text_of
from talaria.testing.drawing import Drawing
from talaria.testing.sequences import Cutter, Sequence

BELL = "\a"
_PRIVATE = 5  # pyte keeps private modes this many bits higher
_ALTERNATE = {47, 1047, 1049}
_BRACKETED_PASTE = 2004 << _PRIVATE
_CURSOR_KEYS = 1 << _PRIVATE
_SET, _RESET = "h", "l"
_WIDTH_OF_THE_PRINTER = 3  # 132 columns: terminals of today do not obey
_KNOWN_FINALS = frozenset(pyte.Stream.csi)
_NUMBERS = {"H": 2, "f": 2, "r": 2, "h": 9, "l": 9}  # what may have more than one; pyte fails on too many
_KNOWN_ESCAPES = frozenset(f"\x1b{letter}" for letter in pyte.Stream.escape)


class Terminal(Drawing):
    """Takes what a program sends: obeys what it knows, drops what it does not, remembers what scrolls out.

    Like xterm it does not wrap lines anew when its width changes. ``answer`` gets what it has to say to the program.
    ``alerts`` has a `BELL` for each time it rang, and the text of each notification for the desktop (OSC 9).
    """

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        self._behind: tuple[dict[int, Line], Cursor] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cutter = Cutter()
        self.alerts: list[str] = []
        super().__init__(columns, rows, answer)
        self._stream = pyte.Stream(self)

    @property
    def rows(self) -> list[str]:
        """What is shown, without the blanks at the ends of lines."""
        return [self.row(number) for number in range(self.lines)]

    @property
    def cells(self) -> list[list[Cell]]:
        """What is shown, with colours."""
        return [list(cells_of(self.buffer[row], self.columns)) for row in range(self.lines)]

    @property
    def takes_pastes(self) -> bool:
        """Whether the program wants to know where a paste begins and ends."""
        return _BRACKETED_PASTE in self.mode

    @property
    def application_keys(self) -> bool:
        """Whether the program wants the arrows as an application's."""
        return _CURSOR_KEYS in self.mode

    def row(self, number: int) -> str:
        """Return one line of what is shown."""
        return text_of(self.buffer[number], self.columns)

    def feed(self, output: bytes) -> None:
        """Take what the program sent."""
        for piece in self._cutter.cut(self._decoder.decode(output)):
            if isinstance(piece, str):
                self._stream.feed(piece)
            elif piece.final:
                self._obey(piece)
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
        """Begin anew, in front."""
        self._behind = None
        super().reset()

    def index(self) -> None:
        """Go a line down, and remember what that moves out at the top."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y == bottom and top == 0 and self._behind is None:
            self.scrolled_out.append(self.row(0))
        super().index()

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size; the cursor's line stays on the screen, what has no place leaves at the top."""
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

    def _obey(self, sequence: Sequence) -> None:
        numbers = [int(number or 0) for number in sequence.numbers.replace(":", ";").split(";")]
        match sequence.private, sequence.marks, sequence.final:
            case "", "", "m":
                self.select_graphic_rendition(*_with_semicolons(sequence.numbers))
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
        modes = [mode for mode in modes if mode != _WIDTH_OF_THE_PRINTER]
        (self.set_mode if final == _SET else self.reset_mode)(*modes, private=True)
        if not _ALTERNATE & set(modes):
            return
        if final == _SET and self._behind is None:
            self._behind = dict(self.buffer), self.cursor
            self.buffer.clear()
            self.cursor = Cursor(0, 0)
        elif final == _RESET and self._behind is not None:
            lines, self.cursor = self._behind
            self._behind = None
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


def _with_semicolons(numbers: str) -> Iterator[int]:
    """Yield the numbers of a rendition, with colons, which pyte does not know, resolved."""
    for group in numbers.split(";"):
        first, *more = group.split(":")
        if first == "4" and more:
            yield 24 if more[0] == "0" else 4
        elif more[:1] == ["2"]:
            yield from (int(number or 0) for number in [first, "2", *more[-3:]])
        else:
            yield from (int(number or 0) for number in [first, *more])
