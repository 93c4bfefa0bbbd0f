"""Where a subcommand prints: tables and colours on a terminal, plain text in a pipe, JSON where it is asked for."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

import msgspec

from talaria.cli.cells import RESET, STYLES, cell, columns, cut, harmless, pad, wrap
from talaria.core.harmless import harmless_json

_GAP = "  "
_NARROWEST = 1
_SURELY_FITS = 20  # columns of the narrowest terminal worth asking for its width


class Terminal:
    """The three streams of this process, and how each of them is to be written to.

    ``color`` is what the command line says: ``always`` and ``never`` give way to nothing, ``auto`` heeds
    ``NO_COLOR``, then ``CLICOLOR_FORCE``, then ``preference`` (of the settings), then whether somebody watches.
    Data cannot disturb the screen: control characters in what is printed are shown as escapes.
    """

    def __init__(
        self,
        streams: tuple[TextIO, TextIO, TextIO],
        environment: Mapping[str, str],
        *,
        color: str = "auto",
        preference: str = "auto",
    ) -> None:
        self._stdin, self._stdout, self._stderr = streams
        self._environment = environment
        choice = _color_choice(color, preference, environment)
        self._colored = _wants_color(choice, environment, self._stdout)
        self._notes_colored = _wants_color(choice, environment, self._stderr)

    @property
    def interactive(self) -> bool:
        """Whether a person reads the output and can answer."""
        return self._stdin.isatty() and self._stdout.isatty()

    @property
    def width(self) -> int:
        """How many columns there are: ``COLUMNS``, else the terminal's own, else 80."""
        wish = self._environment.get("COLUMNS", "")
        if wish.isdecimal() and int(wish):
            return int(wish)
        try:
            return os.get_terminal_size(self._stdout.fileno()).columns or 80
        except OSError:
            return 80

    def line(self, text: str = "") -> None:
        """Print one line, or several if the text has them; on a terminal, longer ones are wrapped at words."""
        print(self._wrapped(harmless(text, styled=self._colored), self._stdout), file=self._stdout)

    def piece(self, text: str) -> None:
        """Print a piece of a line at once."""
        print(harmless(text, styled=self._colored), end="", file=self._stdout, flush=True)

    def prompt(self, text: str) -> None:
        """Invite a person to type, beside the output."""
        self._stdout.flush()
        print(harmless(text, styled=self._notes_colored), end="", file=self._stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a remark on stderr; on a terminal, long lines are wrapped at words."""
        self._stdout.flush()
        print(self._wrapped(harmless(text, styled=self._notes_colored), self._stderr), file=self._stderr)

    def document(self, text: str, *, at_once: bool = False) -> None:
        """Print a whole document: to the last character as it is in a pipe, made harmless on a terminal."""
        self._stdout.write(harmless(text) if self._stdout.isatty() else text)
        if at_once:
            self._stdout.flush()

    def json(self, value: object) -> None:
        """Print a value as indented JSON: dataclasses, structs, datetimes and paths included."""
        encoded = msgspec.json.encode(value, enc_hook=_encode_other)
        print(harmless_json(msgspec.json.format(encoded, indent=2).decode()), file=self._stdout)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows: aligned under their headers on a terminal, separated by tabs and without headers in a pipe."""
        texts = [["" if value is None else cell(str(value), styled=self._colored) for value in row] for row in rows]
        if self._stdout.isatty():
            self._aligned(headers, texts, _number_columns(rows))
            return
        for row in texts:
            print("\t".join(row), file=self._stdout)

    def styled(self, text: str, *styles: str) -> str:
        """Return the text in these styles, or as it is where nothing is coloured.

        Styles are ``bold``, ``dim``, ``red``, ``green``, ``yellow`` and ``cyan``.
        """
        if not (styles and text and (self._colored or self._notes_colored)):
            return text
        return "".join(f"\x1b[{STYLES[style]}m" for style in styles) + text + RESET

    def confirm(self, question: str) -> bool:
        """Ask a person; anything but yes, and nobody there to ask, is a no."""
        if not self._stdin.isatty():
            return False
        self._stdout.flush()
        print(harmless(f"{question} [y/N] ", styled=self._notes_colored), end="", file=self._stderr, flush=True)
        answer = self._stdin.readline()
        if not answer.endswith("\n"):
            print(file=self._stderr)
        return answer.strip().lower() in {"y", "yes"}

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator["Progress"]:
        """Show how far something is, on one line of a terminal that goes when the block ends; silent elsewhere."""
        live = self._stderr.isatty() and self._environment.get("TERM") != "dumb"
        progress = Progress(self._stderr if live else None, cell(label), total, self.width)
        try:
            yield progress
        finally:
            progress.clear()

    def _wrapped(self, text: str, stream: TextIO) -> str:
        return wrap(text, self.width) if len(text) > _SURELY_FITS and stream.isatty() else text

    def _aligned(self, headers: Sequence[str], rows: list[list[str]], numbers: set[int]) -> None:
        widths = _fitting_widths([list(headers), *rows], self.width)
        self.line(self._joined([self.styled(header, "bold") for header in headers], widths, numbers))
        self.line(self.styled(_GAP.join("─" * width for width in widths), "dim"))
        for row in rows:
            self.line(self._joined(row, widths, numbers))

    def _joined(self, row: Sequence[str], widths: Sequence[int], numbers: set[int]) -> str:
        sized = [
            pad(cut(text, width), width, right=place in numbers)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return _GAP.join(sized).rstrip()


class Progress:
    """How much of a known amount is done."""

    def __init__(self, screen: TextIO | None, label: str, total: int, width: int) -> None:
        self._screen = screen
        self._label = label
        self._total = total
        self._width = width
        self._done = 0
        self._shown = -1
        self.advance(0)

    def advance(self, amount: int = 1) -> None:
        """Count what was done since; redraws only when the percentage changes."""
        self._done += amount
        percent = 100 * self._done // self._total if self._total else 100
        if self._screen is None or percent == self._shown:
            return
        self._shown = percent
        text = cut(f"{self._label}  {percent} %  ({self._done} of {self._total})", self._width - 1)
        print(f"\r{text}\x1b[K", end="", file=self._screen, flush=True)

    def clear(self) -> None:
        """Take the line off the screen."""
        if self._screen is not None:
            print("\r\x1b[K", end="", file=self._screen, flush=True)


def _color_choice(color: str, preference: str, environment: Mapping[str, str]) -> str:
    if color != "auto":
        return color
    if environment.get("NO_COLOR"):
        return "never"
    return "always" if environment.get("CLICOLOR_FORCE", "0") not in {"", "0"} else preference


def _wants_color(choice: str, environment: Mapping[str, str], stream: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and environment.get("TERM") != "dumb"


def _number_columns(rows: Sequence[Sequence[object]]) -> set[int]:
    places = range(len(rows[0])) if rows else range(0)
    return {place for place in places if all(isinstance(row[place], int | float) for row in rows)}


def _fitting_widths(rows: list[list[str]], room: int) -> list[int]:
    """Return a width for each column; where all is too wide, the widest give way first."""
    widths = [min(room, max(columns(row[place]) for row in rows)) for place in range(len(rows[0]))]
    room -= len(_GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _encode_other(value: object) -> str:
    if isinstance(value, os.PathLike):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")
