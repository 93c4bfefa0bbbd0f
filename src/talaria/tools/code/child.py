"""One run of the child process: start, output, tool calls, guaranteed end."""

import asyncio
import codecs
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.sandbox import SandboxedCall, SandboxPrograms
from talaria.core.errors import ToolFailed
from talaria.core.files import person_umask
from talaria.tools.output import join_cut, make_readable

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
            self._show(make_readable(text.encode()))
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
            return make_readable(bytes(self._head + self._tail))
        return join_cut(make_readable(bytes(self._head)), make_readable(bytes(self._tail)), missing=self._left_out)


class Child:
    """A running child; valid only inside `running`."""

    def __init__(self, process: asyncio.subprocess.Process, calls: "_Calls", output_ended: asyncio.Event) -> None:
        self._process = process
        self._calls = calls
        self._output_ended = output_ended

    async def receive_request(self) -> Request | None:
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
                await self._output_ended.wait()
        return code


@asynccontextmanager
async def running(
    code: str, *, launch: Callable[[list[str]], SandboxedCall], output: Output, programs: SandboxPrograms | None = None
) -> AsyncIterator[Child]:
    """Run code in its own process group, which is killed when the block ends for any reason.

    ``launch`` makes the call that starts Python. A sandbox with its own programs gets the runner as source text.
    """
    output_end, childs_output = os.pipe()
    own = [sys.executable, "-I", "-X", "utf8", str(_RUNNER)]
    inside = [*programs.python, "-I", "-X", "utf8", "-c", _RUNNER.read_text()] if programs else own
    started = launch(inside)
    try:
        process = await _start_process(
            started.argv, cwd=started.folder, env=started.environment, start_new_session=True, limit=_LONGEST_LINE,
            stdin=asyncio.subprocess.PIPE, stdout=childs_output, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except BaseException:
        os.close(output_end)
        raise
    finally:
        os.close(childs_output)
    try:
        calls = _Calls(process, output)
        await calls.send({"code": code})
        try:
            yield Child(process, calls, _listen(output_end, output))
        finally:
            asyncio.get_running_loop().remove_reader(output_end)
            await calls.close()
    finally:
        os.close(output_end)
        _kill_group(process.pid)
        await process.wait()


class _Calls:
    """Lines of JSON in both directions; what else is printed before them comes from a program that didn't start."""

    def __init__(self, process: asyncio.subprocess.Process, output: Output) -> None:
        assert process.stdin is not None
        assert process.stderr is not None
        self._reader, self._writer = process.stderr, process.stdin
        self._output = output

    async def send(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):  # the child has ended; `wait` says how
            self._writer.write(msgspec.json.encode(message) + b"\n")
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def receive(self) -> Request | None:
        is_too_long = False
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # the rest of the line follows
                is_too_long = True
                continue
            if not line:
                return None
            if is_too_long:
                is_too_long = False
                await self.send({"text": "The arguments are too long.", "failed": True})
                continue
            try:
                return msgspec.json.decode(line, type=Request)
            except msgspec.DecodeError:  # not from our runner
                self._output.add(line)


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


async def _start_process(argv: Sequence[str], **options: Any) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*argv, umask=person_umask(), **options)
    except OSError as error:
        raise ToolFailed(f"Python couldn't be started: {error}") from error


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
