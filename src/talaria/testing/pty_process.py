"""A program on its own pseudo-terminal."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_AT_ONCE = 65536
_PATIENCE = 3.0
# The shell leads a new session, so that the first terminal it opens becomes the session's; then it is the program.
_OPEN = 'exec "$@" <>"$0" >&0 2>&0'

# Starts a program in a session of its own: takes its protocol, terminal, command, environment and folder.
Spawn = Callable[[asyncio.SubprocessProtocol, str, Sequence[str], Mapping[str, str], Path | None], Awaitable[object]]


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
