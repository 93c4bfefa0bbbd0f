"""Runs of `talaria` that are forked from a process which has already imported it; see `tests.app.fork_server`."""

import asyncio
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

import msgspec
from tests.app.fork_server import Run
from tests.shared_servers import ServerName, server_address

from talaria.settings.environment import process_environment

PIPE = asyncio.subprocess.PIPE
DEVNULL = asyncio.subprocess.DEVNULL
_LONGEST_ANSWER = 64
_ROOT = Path(__file__).parents[2]
_COMMAND = Path(__file__).with_name("warm_command.py")


class WarmProcess:
    """A forked run, with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, connection: socket.socket, on_exit: Callable[[], None] = lambda: None) -> None:
        self.pid = pid
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._connection = connection
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        connection.settimeout(0)
        self._loop.add_reader(connection, self._read_code)

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, once the process has ended."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        return await asyncio.shield(self._ended)

    async def communicate(self) -> tuple[bytes, bytes]:
        """Read all output, wait for the end, and return the output and the errors."""
        out, err = await asyncio.gather(_read_all(self.stdout), _read_all(self.stderr))
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and its exit code is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)

    def _read_code(self) -> None:
        self._loop.remove_reader(self._connection)
        with self._connection:
            self._ended.set_result(int(self._connection.recv(_LONGEST_ANSWER)))
        self._on_exit()


class WarmTransport(asyncio.SubprocessTransport):
    """A forked run on a terminal, for the protocol of a process."""

    def __init__(self, process: WarmProcess) -> None:
        super().__init__()
        self._process = process

    def get_pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def get_returncode(self) -> int | None:
        """Return the exit code once the process has ended."""
        return self._process.returncode

    def send_signal(self, signal: int) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send_signal(signal)

    def close(self) -> None:
        """Do nothing: the connection is closed when the process ends."""


async def spawn(
    protocol: asyncio.SubprocessProtocol,
    terminal: str,
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
) -> None:
    """Start a run on a terminal, for `talaria.testing.screen.open_screen`; the program in ``command`` is `talaria`."""
    with ExitStack() as theirs:
        nothing = [_open_stream(0, DEVNULL, theirs)[0]]
        pid, connection = _request(command[1:], env, cwd, nothing, terminal=terminal)
    protocol.connection_made(WarmTransport(WarmProcess(pid, connection, protocol.process_exited)))


async def start(
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> WarmProcess:
    """Start a run without input; the parameters are those of `asyncio.create_subprocess_exec`."""
    with ExitStack() as theirs:
        out, own_out = _open_stream(1, stdout, theirs)
        err, own_err = _open_stream(2, stderr, theirs)
        process = WarmProcess(*_request(arguments, env, cwd, [_open_stream(0, DEVNULL, theirs)[0], out, err]))
    process.stdout = await _open_reader(own_out)
    process.stderr = await _open_reader(own_err)
    return process


async def start_module(module: str, *arguments: str, stdout: int | None = None) -> WarmProcess:
    """Start a module of ours as a program, with the environment of this process."""
    with ExitStack() as theirs:
        out, own_out = _open_stream(1, stdout, theirs)
        streams = [_open_stream(0, DEVNULL, theirs)[0], out, 2]
        process = WarmProcess(*_request(arguments, _module_environment(), _ROOT, streams, module=module))
    process.stdout = await _open_reader(own_out)
    return process


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return a command line for a program that Talaria starts: a module as a process, forked from a warm one."""
    return (sys.executable, "-IS", str(_COMMAND), _server_path("programs"), module, *arguments)


@contextmanager
def dialogue(module: str, *arguments: str) -> Iterator[tuple[int, IO[str], IO[str]]]:
    """Run a module of ours as `start_module` does; yield its pid, its input and its output, and kill it in the end."""
    with ExitStack() as theirs:
        given, own_input = os.pipe()
        theirs.callback(os.close, given)
        own_out, out = os.pipe()
        theirs.callback(os.close, out)
        pid, connection = _request(arguments, _module_environment(), _ROOT, [given, out, 2], module=module)
    with connection, os.fdopen(own_input, "w") as writer, os.fdopen(own_out) as reader:
        try:
            yield pid, writer, reader
        finally:
            if not select.select([connection], [], [], 0)[0]:  # its exit code has not come
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            connection.recv(_LONGEST_ANSWER)


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    typed: bytes = b"",
    module: str = "",
) -> tuple[int, str, str]:
    """Run the program, or a module of ours, with this input; return the exit code, the output and the errors."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(typed)
        given.seek(0)
        _, connection = _request(arguments, env, cwd, [given.fileno(), out.fileno(), err.fileno()], module=module)
        with connection:
            code = int(connection.recv(_LONGEST_ANSWER))
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(), err.read().decode()


def run_on_terminal(
    arguments: Sequence[str], env: Mapping[str, str], terminal: str, keyboard: int
) -> tuple[int, bytes]:
    """Run the program on a terminal, whose other end is ``keyboard``; return the exit code and what was shown."""
    with ExitStack() as theirs:
        _, connection = _request(arguments, env, None, [_open_stream(0, DEVNULL, theirs)[0]], terminal=terminal)
    shown = bytearray()
    with connection:
        while keyboard in select.select([keyboard, connection.fileno()], [], [])[0]:
            try:
                shown += os.read(keyboard, 65536)
            except OSError:  # how Linux reports that the terminal's session has ended
                break
        return int(connection.recv(_LONGEST_ANSWER)), bytes(shown)


def run_worker() -> int:
    """Run a worker of pytest on the streams of this process, forked from one that has imported the tests."""
    folder = Path.cwd()
    _, connection = _request((), _module_environment(), folder, (0, 1, 2), server="workers", module="tests.worker")
    for number in range(3):
        os.close(number)
    with connection:
        return int(connection.recv(_LONGEST_ANSWER))


def _request(
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    streams: Sequence[int],
    *,
    server: ServerName = "programs",
    module: str = "",
    terminal: str = "",
) -> tuple[int, socket.socket]:
    """Ask for a run; return its pid and the connection on which its exit code arrives."""
    assert not any(name.startswith("PYTHON") for name in env), "the interpreter has read its variables already"
    run = Run(list(arguments), dict(env), str(cwd or Path.cwd()), _read_mask(), module, terminal)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_server_path(server))
    socket.send_fds(connection, [msgspec.json.encode(run)], list(streams))
    return int(connection.recv(_LONGEST_ANSWER)), connection


@cache
def _server_path(name: ServerName) -> str:
    return server_address(name)


def _module_environment() -> dict[str, str]:
    return {name: value for name, value in process_environment().items() if not name.startswith("PYTHON")}


def _read_mask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _open_stream(number: int, kind: int | None, theirs: ExitStack) -> tuple[int, IO[bytes] | None]:
    """Return the end of a stream for the run, closed with ``theirs``, and the end for the test, if there is one."""
    if kind is None:
        return number, None
    if kind == DEVNULL:
        return theirs.enter_context(Path(os.devnull).open("r+b")).fileno(), None
    if kind != PIPE:
        return kind, None
    reading, writing = os.pipe()
    theirs.callback(os.close, writing)
    return writing, os.fdopen(reading, "rb", buffering=0)


async def _open_reader(end: IO[bytes] | None) -> asyncio.StreamReader | None:
    if end is None:
        return None
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
    return reader


async def _read_all(reader: asyncio.StreamReader | None) -> bytes:
    return b"" if reader is None else await reader.read()
