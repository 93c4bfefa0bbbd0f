"""Servers shared by a run of the suite, each started when the first test of any process needs it.

They belong to the main process of the run, which answers at a port of loopback. Its children find the port in their
environment.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

from talaria.settings.environment import process_environment
from talaria.testing.postgres import PostgresServer, find_postgres

PORT_VARIABLE = "TALARIA_TEST_SERVERS"
ServerName = Literal["postgres", "programs", "workers"]
_ROOT = Path(__file__).parents[1]


class SharedServers:
    """The servers of a run: PostgreSQL, and those that fork for each run of `talaria` or each worker.

    ``options`` are pytest options that select the tests of the workers; ``memory`` is a folder in memory, if there is
    one.
    """

    def __init__(self, options: Sequence[str], memory: Path | None) -> None:
        self._options = options
        self._memory = memory
        self._open = ExitStack()
        self._started: dict[str, str] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        os.environ[PORT_VARIABLE] = str(self._listener.getsockname()[1])  # noqa: TID251 (workers of this run inherit it)
        self._thread = threading.Thread(target=self._serve, name="shared-servers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and end the servers."""
        with suppress(OSError):  # closed, because a server did not start
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._open.close()

    def _serve(self) -> None:
        with self._listener:  # a server that does not start ends this thread, and later callers are refused
            while True:
                try:
                    caller, _ = self._listener.accept()
                except OSError:  # closed
                    return
                with caller, caller.makefile("rw", encoding="utf-8") as line:
                    line.write(self._find_address(line.readline().strip()))

    def _find_address(self, name: str) -> str:
        if name not in self._started:
            self._start(name)
        return self._started[name]

    def _start(self, name: str) -> None:
        if name == "postgres":
            self._started[name] = self._open.enter_context(PostgresServer(parent=self._memory)).url
            return
        server = self._launch_fork_server(name)
        if name == "workers" and "--quick" not in self._options:
            self._start_servers_of_tests()
        _wait_until_ready(server)

    def _start_servers_of_tests(self) -> None:
        """Start what the tests of a whole run need, on the processor that the import of the tests leaves idle."""
        programs = self._launch_fork_server("programs")
        if find_postgres() is not None:
            self._start("postgres")
        _wait_until_ready(programs)

    def _launch_fork_server(self, name: str) -> "subprocess.Popen[bytes]":
        """Launch `tests.app.fork_server`; it ends with this process, because its input does."""
        folder = tempfile.mkdtemp(prefix="talaria-fork-")
        self._open.callback(shutil.rmtree, folder, ignore_errors=True)
        address = f"{folder}/socket"
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.app.fork_server", address, *(self._options if name == "workers" else ())],
            cwd=_ROOT,
            env={"PATH": process_environment()["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._open.callback(server.communicate)
        self._started[name] = address
        return server


def _wait_until_ready(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdout is not None
    if server.stdout.readline() != b"ready\n":
        raise RuntimeError("the fork server did not start")


def server_address(name: ServerName) -> str:
    """Return the address of a server of this run, which is started if necessary."""
    port = int(process_environment()[PORT_VARIABLE])
    with socket.create_connection(("127.0.0.1", port)) as caller, caller.makefile("rw", encoding="utf-8") as line:
        line.write(f"{name}\n")
        line.flush()
        return line.read()
