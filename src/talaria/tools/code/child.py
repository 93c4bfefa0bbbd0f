"""One run of the child process: start, output, tool calls, guaranteed end."""

import asyncio
import codecs
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.core.umask import person_umask
from talaria.tools.output import join_cut, readable

Wrap = Callable[[Sequence[str], Path], list[str]]
OUTPUT_LIMIT = 20_000  # bytes kept: half from the beginning, half from the end
_RUNNER = Path(__file__).with_name("runner.py")
_LONGEST_LINE = 8 * 1024 * 1024
_CHUNK = 65_536
_LAST_WORDS = 0.2


class Request(Struct, frozen=True):
    """A tool call made by the code."""

    name: str
    arguments: dict[str, Any]


class Output:
    """The child's output: shown as it arrives, stored at both ends."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        if text := self._decoder.decode(piece):
            self._show(readable(text.encode()))
        room = max(0, OUTPUT_LIMIT // 2 - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if (surplus := len(self._tail) - OUTPUT_LIMIT // 2) > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    @property
    def text(self) -> str:
        """Return the text for the model."""
        if not self._left_out:
            return readable(bytes(self._head + self._tail))
        return join_cut(readable(bytes(self._head)), readable(bytes(self._tail)), missing=self._left_out)


class Child:
    """A running child; valid only inside `running`."""

    def __init__(self, process: asyncio.subprocess.Process, calls: "_Calls", heard: asyncio.Event) -> None:
        self._process = process
        self._calls = calls
        self._heard = heard

    async def next_request(self) -> Request | None:
        """Return the next tool call of the code; ``None`` when there are no more."""
        return await self._calls.receive()

    async def answer(self, text: str, *, failed: bool = False) -> None:
        """Answer the last call."""
        await self._calls.send({"text": text, "failed": failed})

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, after the child has ended and its output was read."""
        code = await self._process.wait()
        _kill_group(self._process.pid)
        with suppress(TimeoutError):  # an escaped process may hold the output open
            async with asyncio.timeout(_LAST_WORDS):
                await self._heard.wait()
        return code


@asynccontextmanager
async def running(
    code: str, *, folder: Path, environment: Mapping[str, str], output: Output, wrap: Wrap | None = None
) -> AsyncIterator[Child]:
    """Run code in its own process group, which is killed when the block ends for any reason."""
    with ExitStack() as ours, ExitStack() as theirs:
        socket_end, childs_socket = socket.socketpair()
        output_end, childs_output = _pipe(ours, theirs)
        lifeline_end = _pipe(theirs, ours)[0]
        theirs.enter_context(childs_socket)
        ours.enter_context(socket_end)
        argv = [sys.executable, "-I", "-X", "utf8", str(_RUNNER), str(childs_socket.fileno())]
        process = await _started(
            wrap(argv, folder) if wrap else argv, cwd=folder, env=environment, pass_fds=(childs_socket.fileno(),),
            stdin=lifeline_end, stdout=childs_output, stderr=childs_output, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        try:
            calls = await _Calls.opened(socket_end, code)
            try:
                yield Child(process, calls, _listen(output_end, output))
            finally:
                asyncio.get_running_loop().remove_reader(output_end)
                await calls.close()
        finally:
            _kill_group(process.pid)
            await process.wait()


class _Calls:
    """Lines of JSON in both directions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, connection: socket.socket, code: str) -> "_Calls":
        """Take over the connection and send the code through it."""
        calls = cls(*await asyncio.open_unix_connection(sock=connection, limit=_LONGEST_LINE))
        await calls.send({"code": code})
        return calls

    async def send(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):  # the child has ended; `wait` says how
            self._writer.write(msgspec.json.encode(message) + b"\n")
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def receive(self) -> Request | None:
        try:
            line = await self._reader.readline()
            return msgspec.json.decode(line, type=Request) if line else None
        except ConnectionError:
            return None
        except (ValueError, msgspec.DecodeError):  # not from our runner, or too long: stop answering
            self._writer.close()
            return None


def _listen(descriptor: int, output: Output) -> asyncio.Event:
    """Pass on the output, and return an event that is set at its end."""
    loop = asyncio.get_running_loop()
    silent = asyncio.Event()

    def read() -> None:
        piece = os.read(descriptor, _CHUNK)
        if piece:
            output.add(piece)
        else:
            loop.remove_reader(descriptor)
            silent.set()

    loop.add_reader(descriptor, read)
    return silent


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Return a pipe whose ends are closed by these two."""
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


async def _started(argv: Sequence[str], **options: Any) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*argv, umask=person_umask(), **options)
    except OSError as error:
        raise ToolFailed(f"Python couldn't be started: {error}") from error


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
