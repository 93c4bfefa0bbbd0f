"""Run a program on its own pseudo-terminal like a person: type, wait for output, read the screen."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from talaria.testing.terminal import Cell, Terminal
from talaria.testing.wait import LIMIT

_AT_ONCE = 65536
_PATIENCE = 3.0
# The shell leads a new session, so that the first terminal it opens becomes the session's; then it is the program.
_OPEN = 'exec "$@" <>"$0" >&0 2>&0'
# Starts a program in a session of its own: takes its protocol, terminal, command, environment and folder.
Spawn = Callable[[asyncio.SubprocessProtocol, str, Sequence[str], Mapping[str, str], Path | None], Awaitable[object]]
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


class PtyProcess(asyncio.SubprocessProtocol):
    """A running program, the far end of its terminal, and its pending input.

    Each piece of output is passed to ``on_output``. When the program has ended and all output was passed on,
    ``on_exit`` is called.
    """

    def __init__(self, on_output: Callable[[bytes], None], on_exit: Callable[[], None]) -> None:
        self.pid = 0
        self.exit_code: int | None = None
        self._on_output = on_output
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._unwritten = bytearray()
        self._written = asyncio.Event()
        self._person, self._program = pty.openpty()
        os.set_blocking(self._person, False)
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path | None, spawn: Spawn | None = None
    ) -> None:
        """Run the program in a session of its own, with the terminal for its controlling one."""
        self._loop.add_reader(self._person, self._read)
        await (spawn or _spawn)(self, os.ttyname(self._program), command, env, cwd)

    def resize(self, columns: int, rows: int) -> None:
        """Say how large the terminal is; the kernel tells the program in front."""
        fcntl.ioctl(self._person, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, data: bytes) -> None:
        """Send keys, now or as soon as there is room for them."""
        self._unwritten += data
        self._write()

    async def drain(self) -> None:
        """Wait until everything has been sent."""
        while self._unwritten and not self._ended.is_set():
            self._written.clear()
            await self._written.wait()

    def kill(self, by: signal.Signals) -> None:
        """Send a signal to the program alone, if it still runs."""
        if self._transport is not None:
            with suppress(ProcessLookupError):
                self._transport.send_signal(by)

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, when the program has ended."""
        await self._ended.wait()
        assert self.exit_code is not None
        return self.exit_code

    async def end(self) -> None:
        """End the program and whatever else is in its group, first politely, and give the terminal back."""
        for by in (signal.SIGTERM, signal.SIGKILL):
            if self._transport is not None and not self._ended.is_set():
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, by)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), _PATIENCE)
        if self._transport is not None:
            self._transport.close()
        self._loop.remove_reader(self._person)
        self._loop.remove_writer(self._person)
        os.close(self._person)
        os.close(self._program)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the program that was started."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self.pid = transport.get_pid()

    def process_exited(self) -> None:
        """Hand over what the program said last."""
        while self._read():
            pass
        assert self._transport is not None
        self.exit_code = self._transport.get_returncode()
        self._ended.set()
        self._written.set()
        self._on_exit()

    def _read(self) -> bool:
        try:
            output = os.read(self._person, _AT_ONCE)
        except OSError:  # nothing more for now, or nobody left who could say something
            return False
        if output:
            self._on_output(output)
        return bool(output)

    def _write(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._person, self._unwritten)]
        except BlockingIOError:
            self._loop.add_writer(self._person, self._write)
            return
        self._loop.remove_writer(self._person)
        self._written.set()


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

    async def wait_for(self, expected: str | re.Pattern[str], *, seconds: float = LIMIT) -> re.Match[str]:
        """Wait until the screen shows this text, or a match of this pattern, and return the match."""
        pattern = re.compile(re.escape(expected)) if isinstance(expected, str) else expected
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            found.extend(pattern.finditer(self.text))
            return bool(found)

        await self.wait_until(is_there, seconds=seconds, expected=repr(expected))
        return found[0]

    async def wait_until(self, holds: Callable[[], bool], *, seconds: float = LIMIT, expected: str = "that") -> None:
        """Wait until something holds, looking again whenever the program has written something."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    if self.process.exit_code is not None:
                        raise self._describe_failure(expected)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise self._describe_failure(f"{expected} within {seconds:g} s") from None

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

    def _describe_failure(self, expected: str) -> AssertionError:
        code = self.process.exit_code
        state = "is running" if code is None else f"ended with exit code {code}"
        edge = "─" * self._terminal.columns
        shown = "\n".join([f"┌{edge}┐", *(f"│{line}" for line in self.text.split("\n")), f"└{edge}┘"])
        cursor = self.cursor
        return AssertionError(
            f"The screen did not show {expected}. The program {state}; "
            f"the cursor is at row {cursor.row}, column {cursor.column}.\n{shown}"
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


async def _spawn(
    protocol: asyncio.SubprocessProtocol,
    terminal: str,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
) -> None:
    await asyncio.get_running_loop().subprocess_exec(
        lambda: protocol,
        "/bin/sh",
        "-c",
        _OPEN,
        terminal,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    )


def _split_key(key: str) -> tuple[str, int]:
    modifiers = 0
    while len(key) > 2 and key[1] == "-" and key[0] in _MODIFIERS:
        modifiers |= _MODIFIERS[key[0]]
        key = key[2:]
    return key, modifiers


def _strip_alt(key: str) -> str:
    before, _, after_modifier = key.partition("a-")
    return before + after_modifier
