"""Run a program on a terminal like a person: type, wait for output, read the screen."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from talaria.testing.keys import key_bytes
from talaria.testing.pty_process import PtyProcess, Spawn
from talaria.testing.terminal import Terminal
from talaria.testing.terminal_cells import Cell
from talaria.testing.wait import LIMIT

_TERM_ENVIRONMENT = {"TERM": "xterm-256color"}


class CursorPosition(Struct, frozen=True):
    """The position of the cursor, counted from 0."""

    row: int
    column: int
    visible: bool


@asynccontextmanager
async def open_screen(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    columns: int = 100,
    rows: int = 30,
    cwd: Path | None = None,
    spawn: Spawn | None = None,
) -> AsyncIterator["Screen"]:
    """Run a program with this environment on a terminal of its own; it is ended with the block.

    The terminal is an `xterm-256color` unless ``env`` says otherwise. ``spawn`` starts the program in another way.
    """
    screen = Screen(columns, rows)
    try:
        await screen.process.start(command, {**_TERM_ENVIRONMENT, **env}, cwd, spawn)
        yield screen
    finally:
        await screen.process.end()


class Screen:
    """The person's end of a terminal: keys in, screen out.

    ``changed_at`` is the time of the last output, on the clock of `time.perf_counter`. ``alerts`` are the bells and
    desktop notifications so far, as in `Terminal`.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.changed_at = perf_counter()
        self.process = PtyProcess(self._show, self._wake)
        self.process.resize(columns, rows)
        self._terminal = Terminal(columns, rows, lambda text: self.process.write(text.encode()))
        self.alerts = self._terminal.alerts
        self._changed = asyncio.Event()

    @property
    def lines(self) -> list[str]:
        """Every line of the screen, without the blanks at its end."""
        return self._terminal.rows

    @property
    def text(self) -> str:
        """The screen as one text, without the empty lines at its end."""
        return "\n".join(self.lines).rstrip("\n")

    @property
    def scrollback(self) -> list[str]:
        """Every line that ever scrolled out at the top, then those of the screen."""
        return [*self._terminal.scrolled_out, *self.lines]

    @property
    def styled(self) -> list[list[Cell]]:
        """The screen with its colours, row by row."""
        return self._terminal.cells

    @property
    def cursor(self) -> CursorPosition:
        """Return where the next character would appear."""
        cursor = self._terminal.cursor
        return CursorPosition(cursor.y, min(cursor.x, self._terminal.columns - 1), not cursor.hidden)

    @property
    def cursor_line(self) -> str:
        """The line that the cursor is in."""
        return self._terminal.row(self._terminal.cursor.y)

    @property
    def title(self) -> str:
        """The title that the program gave its window."""
        return self._terminal.title

    async def type(self, text: str) -> None:
        """Type text; an end of line is the enter key."""
        await self._send(text.replace("\n", "\r").encode())

    async def press(self, *keys: str) -> None:
        """Press keys by their names, as `talaria.testing.keys` knows them."""
        application = self._terminal.application_keys
        await self._send(b"".join(key_bytes(key, application=application) for key in keys))

    async def paste(self, text: str) -> None:
        """Paste text at once, marked as such if the program asked for that."""
        pasted = text.replace("\x1b", "").replace("\r\n", "\n").replace("\n", "\r")
        await self._send((f"\x1b[200~{pasted}\x1b[201~" if self._terminal.wants_bracketed_paste else pasted).encode())

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller; the program gets `SIGWINCH`."""
        self._terminal.resize(rows, columns)
        self.process.resize(columns, rows)

    async def wait_for(self, wanted: str | re.Pattern[str], *, seconds: float = LIMIT) -> re.Match[str]:
        """Wait until the screen shows this text, or a match of this pattern, and return the match."""
        pattern = re.compile(re.escape(wanted)) if isinstance(wanted, str) else wanted
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            found.extend(pattern.finditer(self.text))
            return bool(found)

        await self.wait_until(is_there, seconds=seconds, wanted=repr(wanted))
        return found[0]

    async def wait_until(self, holds: Callable[[], bool], *, seconds: float = LIMIT, wanted: str = "that") -> None:
        """Wait until something holds, looking again whenever the program has written something."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    if self.process.exit_code is not None:
                        raise self._describe_failure(wanted)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise self._describe_failure(f"{wanted} within {seconds:g} s") from None

    async def exit_code(self, *, seconds: float = LIMIT) -> int:
        """Wait for the end of the program and return its exit code, negative for a signal."""
        try:
            return await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            raise self._describe_failure(f"the program's end within {seconds:g} s") from None

    def kill(self, by: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the program."""
        self.process.kill(by)

    async def _send(self, keys: bytes) -> None:
        self.process.write(keys)
        await self.process.drain()

    def _show(self, output: bytes) -> None:
        self.changed_at = perf_counter()
        self._terminal.feed(output)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()

    def _describe_failure(self, wanted: str) -> AssertionError:
        code = self.process.exit_code
        state = "is running" if code is None else f"ended with exit code {code}"
        edge = "─" * self._terminal.columns
        shown = "\n".join([f"┌{edge}┐", *(f"│{line}" for line in self.text.split("\n")), f"└{edge}┘"])
        place = self.cursor
        return AssertionError(
            f"The screen did not show {wanted}. The program {state}; "
            f"the cursor is at row {place.row}, column {place.column}.\n{shown}"
        )
