"""Output of subcommands: tables and colours on a terminal, plain text in a pipe, JSON on request."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

import msgspec

from talaria.cli.terminal_text import RESET, STYLES, cut, display_width, escape_control, format_cell, pad, wrap
from talaria.core.formatting import escape_harmful

_GAP = "  "
_STYLE = r"\x1b\[[\d;]*m"
_NARROWEST = 1
_MIN_WIDTH = 20  # columns of the narrowest terminal worth asking for its width


class Terminal:
    """Standard streams of the process, and how to write to each.

    ``color`` is the command-line option: ``always`` and ``never`` win; ``auto`` uses ``NO_COLOR``, then
    ``CLICOLOR_FORCE``, then ``preference`` (from the settings), then whether the output is a terminal.
    Control characters in printed data are escaped, so data cannot disturb the screen.
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
        choice = _choose_color(color, preference, environment)
        self._colored = _wants_color(choice, environment, self._stdout)
        self._notes_colored = _wants_color(choice, environment, self._stderr)

    @property
    def interactive(self) -> bool:
        """Return whether a user reads the output and can answer."""
        return self._stdin.isatty() and self._stdout.isatty()

    @property
    def width(self) -> int:
        """Number of columns: ``COLUMNS``, else the terminal's, else 80."""
        configured = self._environment.get("COLUMNS", "")
        if configured.isdecimal() and int(configured):
            return int(configured)
        try:
            return os.get_terminal_size(self._stdout.fileno()).columns or 80
        except OSError:
            return 80

    def line(self, text: str = "") -> None:
        """Print one or more lines; on a terminal, long ones are wrapped at words."""
        print(self._wrap(escape_control(text, styled=self._colored), self._stdout), file=self._stdout)

    def piece(self, text: str) -> None:
        """Print a part of a line immediately."""
        print(escape_control(text, styled=self._colored), end="", file=self._stdout, flush=True)

    def prompt(self, text: str) -> None:
        """Print a prompt for input on stderr, without a line break."""
        self._stdout.flush()
        print(escape_control(text, styled=self._notes_colored), end="", file=self._stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a note on stderr; on a terminal, long lines are wrapped at words."""
        self._stdout.flush()
        print(self._wrap(escape_control(text, styled=self._notes_colored), self._stderr), file=self._stderr)

    def document(self, text: str, *, flush: bool = False) -> None:
        """Print a document: unchanged in a pipe, with control characters escaped on a terminal."""
        self._stdout.write(escape_control(text) if self._stdout.isatty() else text)
        if flush:
            self._stdout.flush()

    def markdown(self, text: str) -> None:
        """Print Markdown without its marks, in bold and italics or plain, and a blank line after it."""
        from talaria.cli.markdown.stream import render  # noqa: PLC0415 (loaded with the first Markdown)
        from talaria.cli.markdown.styled_text import THEMES  # noqa: PLC0415 (the same)

        rendered = f"{render(text, THEMES['mono'], self.width).rstrip()}\n\n"
        self._stdout.write(rendered if self._colored else re.sub(_STYLE, "", rendered))

    def json(self, value: object) -> None:
        """Print a value as indented JSON; supports dataclasses, structs, datetimes and paths."""
        encoded = msgspec.json.encode(value, enc_hook=_encode_other)
        print(escape_harmful(msgspec.json.format(encoded, indent=2).decode()), file=self._stdout)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows: aligned with headers on a terminal, tab-separated without headers in a pipe."""
        texts = [
            ["" if value is None else format_cell(str(value), styled=self._colored) for value in row] for row in rows
        ]
        if self._stdout.isatty():
            self._print_aligned(headers, texts, _find_number_columns(rows))
            return
        for row in texts:
            print("\t".join(row), file=self._stdout)

    def style(self, text: str, *styles: str) -> str:
        """Return the text in these styles, or unchanged without colours.

        Styles are ``bold``, ``dim``, ``red``, ``green``, ``yellow`` and ``cyan``.
        """
        if not (styles and text and (self._colored or self._notes_colored)):
            return text
        return "".join(f"\x1b[{STYLES[style]}m" for style in styles) + text + RESET

    def confirm(self, question: str) -> bool:
        """Ask the user; anything but yes, or no user to ask, means no."""
        if not self._stdin.isatty():
            return False
        self._stdout.flush()
        print(escape_control(f"{question} [y/N] ", styled=self._notes_colored), end="", file=self._stderr, flush=True)
        answer = self._stdin.readline()
        if not answer.endswith("\n"):
            print(file=self._stderr)
        return answer.strip().lower() in {"y", "yes"}

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator["ProgressBar"]:
        """Show progress on one line of a terminal until the block ends; silent elsewhere."""
        live = self._stderr.isatty() and self._environment.get("TERM") != "dumb"
        progress = ProgressBar(self._stderr if live else None, format_cell(label), total, self.width)
        try:
            yield progress
        finally:
            progress.clear()

    def _wrap(self, text: str, stream: TextIO) -> str:
        return wrap(text, self.width) if len(text) > _MIN_WIDTH and stream.isatty() else text

    def _print_aligned(self, headers: Sequence[str], rows: list[list[str]], numbers: set[int]) -> None:
        widths = _fit_widths([list(headers), *rows], self.width)
        self.line(self._join_cells([self.style(header, "bold") for header in headers], widths, numbers))
        self.line(self.style(_GAP.join("─" * width for width in widths), "dim"))
        for row in rows:
            self.line(self._join_cells(row, widths, numbers))

    def _join_cells(self, row: Sequence[str], widths: Sequence[int], numbers: set[int]) -> str:
        sized = [
            pad(cut(text, width), width, right=index in numbers)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return _GAP.join(sized).rstrip()


class ProgressBar:
    """Progress towards a known total."""

    def __init__(self, screen: TextIO | None, label: str, total: int, width: int) -> None:
        self._screen = screen
        self._label = label
        self._total = total
        self._width = width
        self._done = 0
        self._shown = -1
        self.advance(0)

    def advance(self, amount: int = 1) -> None:
        """Add to the progress; redraws only when the percentage changes."""
        self._done += amount
        percent = 100 * self._done // self._total if self._total else 100
        if self._screen is None or percent == self._shown:
            return
        self._shown = percent
        text = cut(f"{self._label}  {percent} %  ({self._done} of {self._total})", self._width - 1)
        print(f"\r{text}\x1b[K", end="", file=self._screen, flush=True)

    def clear(self) -> None:
        """Remove the line from the screen."""
        if self._screen is not None:
            print("\r\x1b[K", end="", file=self._screen, flush=True)


def _choose_color(color: str, preference: str, environment: Mapping[str, str]) -> str:
    if color != "auto":
        return color
    if environment.get("NO_COLOR"):
        return "never"
    return "always" if environment.get("CLICOLOR_FORCE", "0") not in {"", "0"} else preference


def _wants_color(choice: str, environment: Mapping[str, str], stream: TextIO) -> bool:
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and environment.get("TERM") != "dumb"


def _find_number_columns(rows: Sequence[Sequence[object]]) -> set[int]:
    indices = range(len(rows[0])) if rows else range(0)
    return {index for index in indices if all(isinstance(row[index], int | float) for row in rows)}


def _fit_widths(rows: list[list[str]], available: int) -> list[int]:
    """Return the width of each column; if the total is too wide, the widest shrink first."""
    widths = [min(available, max(display_width(row[index]) for row in rows)) for index in range(len(rows[0]))]
    available -= len(_GAP) * (len(widths) - 1)
    while sum(widths) > available and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _encode_other(value: object) -> str:
    if isinstance(value, os.PathLike):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")
