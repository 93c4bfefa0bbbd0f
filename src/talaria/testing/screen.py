"""Run a program on a terminal like a person: type, wait for output, read the screen."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from talaria.testing.pty_process import PtyProcess, Spawn
from talaria.testing.terminal import Cell, Terminal
from talaria.testing.wait import LIMIT

_TERM_ENVIRONMENT = {"TERM": "xterm-256color"}
_PLAIN = {
    "enter": "\r", "tab": "\t", "esc": "\x1b", "backspace": "\x7f", "space": " ", "s-tab": "\x1b[Z",
    "c-space": "\0", "c-@": "\0", "c-backspace": "\x08", "c-\\": "\x1c", "c-]": "\x1d", "c-^": "\x1e", "c-_": "\x1f",
    "f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS",
}  # fmt: skip
_LETTERED = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
_NUMBERED = {
    "insert": 2, "delete": 3, "pageup": 5, "pagedown": 6,
    "f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
}  # fmt: skip
_SHIFT, _ALT, _CONTROL = 1, 2, 4
_MODIFIERS = {"s": _SHIFT, "a": _ALT, "c": _CONTROL}


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
        """Press keys by their names, as `talaria.testing.screen` knows them."""
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


def key_bytes(key: str, *, application: bool = False) -> bytes:
    """Return what a key sends: ``enter``, ``c-c``, ``s-tab``, ``a-enter``, ``c-left``, ``f5``, or a character.

    ``application`` is how programs that asked for it get the arrows.
    """
    if key in _PLAIN or len(key) == 1:
        return _PLAIN.get(key, key).encode()
    base, modifiers = _split_key(key)
    if base in _LETTERED:
        opening = "\x1b[" if modifiers or not application else "\x1bO"
        return f"{opening}{f'1;{1 + modifiers}' if modifiers else ''}{_LETTERED[base]}".encode()
    if base in _NUMBERED:
        return f"\x1b[{_NUMBERED[base]}{f';{1 + modifiers}' if modifiers else ''}~".encode()
    if modifiers == _CONTROL and len(base) == 1 and base.isascii() and base.isalpha():
        return bytes([ord(base.upper()) - ord("@")])
    if modifiers & _ALT:
        return b"\x1b" + key_bytes(_strip_alt(key), application=application)
    raise ValueError(f"Unknown key {key!r}; keys are named like enter, tab, s-tab, c-c, a-enter, up and f5.")


def _split_key(key: str) -> tuple[str, int]:
    modifiers = 0
    while len(key) > 2 and key[1] == "-" and key[0] in _MODIFIERS:
        modifiers |= _MODIFIERS[key[0]]
        key = key[2:]
    return key, modifiers


def _strip_alt(key: str) -> str:
    before, _, after_modifier = key.partition("a-")
    return before + after_modifier
