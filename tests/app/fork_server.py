"""A process that has imported the program and forks for each run of it: ``python -m tests.app.fork_server SOCKET``.

Starting the interpreter and importing the program takes most of the time of a short run. A forked run is a process of
its own, with its own streams, environment, folder and exit code; only the imports are shared. What depends on imports
or on the command line of the process is tested with the installed program (`tests.app.program.TALARIA`).

With options for pytest after the socket, it imports the tests instead, and forks for each worker of a run.
"""

import gc
import io
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

import talaria
from talaria.app.main import main
from talaria.core.lazy import load_module
from talaria.settings.schema import SettingsSchema

_LARGEST_REQUEST = 1 << 20
_STREAMS = 3
# Imported on first use by a process that needs them; the rest of the program loads without them.
_NOT_LOADED = (
    "talaria.__main__",
    "talaria.testing",
    "talaria.providers.embedded",
    # Large libraries that few runs use: a fork copies the page tables of all memory.
    "talaria.api.mcp.server",
    "talaria.platforms.matrix.encryption",
    "talaria.platforms.discord",
    "talaria.platforms.slack",
    "talaria.platforms.xmpp",
)


class Run(msgspec.Struct):
    """A run to start: of the program, or of a test module with ``module``; on a terminal with ``terminal``.

    A run that ``is_bound`` is killed when its connection is closed.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    mask: int
    module: str = ""
    terminal: str = ""
    is_bound: bool = False

    def take_over(self, files: list[int]) -> None:
        """Change streams, environment and folder of this process."""
        if self.terminal:
            os.setsid()  # the first terminal that the leader of a session opens becomes the session's
            files = [os.open(self.terminal, os.O_RDWR) for _ in range(_STREAMS)]
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        _open_streams()
        os.environ.clear()  # noqa: TID251 (the environment of the run)
        os.environ.update(self.environment)  # noqa: TID251 (the environment of the run)
        os.chdir(self.folder)
        os.umask(self.mask)
        sys.argv = [self.module or "talaria", *self.arguments]
        sys.orig_argv = [sys.executable, "-m", self.module or "talaria", *self.arguments]

    def execute(self) -> int:
        """Run to the end and return the exit code."""
        if not self.module:
            return main()
        try:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if isinstance(end.code, str):  # the interpreter prints it
                raise
            return end.code or 0
        return 0


class ForkServer:
    """Sends to each connection the pid of a new run, and its exit code when it ends."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._runs: dict[int, tuple[int, socket.socket]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def serve(self) -> "Run | None":
        """Return a run in its own process, and ``None`` in this one when its input ends."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    run = self._fork()
                    if run is not None:
                        return run
                elif key.fileobj is sys.stdin:
                    self._end_all()
                    return None
                elif isinstance(key.fileobj, socket.socket):
                    self._kill(key.fileobj, key.data)
                else:
                    self._report(key.fd)

    def _fork(self) -> "Run | None":
        connection, _ = self._listener.accept()
        body, files, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, _STREAMS)
        run = msgspec.json.decode(body, type=Run)
        pid = os.fork()
        if pid == 0:
            self._close()
            connection.close()
            run.take_over(files)
            return run
        for file in files:
            os.close(file)
        ended = os.pidfd_open(pid)
        self._runs[ended] = pid, connection
        self._selector.register(ended, selectors.EVENT_READ)
        connection.sendall(str(pid).encode())
        if run.is_bound:
            self._selector.register(connection, selectors.EVENT_READ, pid)
        return None

    def _kill(self, connection: socket.socket, pid: int) -> None:
        """Kill a run whose owner has ended, unless its end has just been reported."""
        if connection.fileno() >= 0:
            self._selector.unregister(connection)
            os.kill(pid, signal.SIGKILL)

    def _report(self, ended: int) -> None:
        pid, connection = self._runs.pop(ended)
        self._selector.unregister(ended)
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with connection:
            try:
                connection.sendall(str(code).encode())
            except OSError:
                return  # the test has ended

    def _end_all(self) -> None:
        for pid, _ in self._runs.values():
            os.kill(pid, signal.SIGKILL)

    def _close(self) -> None:
        """Close the files of the server in a new run."""
        self._selector.close()
        self._listener.close()
        for ended, (_, connection) in self._runs.items():
            os.close(ended)
            connection.close()


def _open_streams() -> None:
    """Open standard streams as the interpreter does when it starts."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8", "surrogateescape")  # type: ignore[misc] # noqa: SIM115
    for name, errors in (("stdout", "surrogateescape"), ("stderr", "backslashreplace")):
        number = 1 if name == "stdout" else 2
        raw = open(number, "wb", closefd=False)  # noqa: SIM115
        lines = name == "stderr" or os.isatty(number)
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _load_program() -> None:
    """Import every module of the program, and resolve the types of the settings, which each run needs too."""
    for module in pkgutil.walk_packages(talaria.__path__, "talaria."):
        if not module.name.startswith(_NOT_LOADED):
            load_module(module.name)
    SettingsSchema().fields()
    gc.collect()
    gc.freeze()


class _Imports:
    """Plugin that lets pytest import the modules of tests and make no tests of what is in them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


def _load_tests(options: list[str]) -> None:
    """Import all modules of tests; import errors are reported by the workers.

    Libraries may store the standard streams, so these stay open.
    """
    with redirect_stdout(Path(os.devnull).open("w")):
        pytest.main(["--collect-only", "-qq", "-n0", "--capture=no", *options], plugins=[_Imports()])
    _prepare_hypothesis()
    gc.collect()
    gc.freeze()


def _prepare_hypothesis() -> None:
    """Let Hypothesis read the constants of all imported modules, as it does for its first example."""
    from hypothesis import find  # noqa: PLC0415 (not in the process that runs the program)
    from hypothesis.strategies import integers  # noqa: PLC0415 (as above)

    find(integers(), lambda _: True)


def _exit(code: int) -> NoReturn:
    """End a run as the interpreter does, without taking the imported modules apart: that would copy all memory."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve(address: Path, options: list[str]) -> int:
    """Serve until the input ends, then remove the folder of the socket; in a forked process, run the program."""
    if options:
        _load_tests(options)
    else:
        _load_program()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(address))
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    run = ForkServer(listener).serve()
    if run is None:
        address.unlink()
        address.parent.rmdir()
        return 0
    _exit(run.execute())


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), sys.argv[2:]))
