"""A private PostgreSQL server for tests and benchmarks."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from talaria.testing.system_servers import free_port

MISSING = "PostgreSQL is not installed; on Debian: apt install postgresql"
_USER = "talaria"
_ACCOUNT = "postgres"  # the server refuses to run as root
_START_SECONDS = 60
_STOP_SECONDS = 20
_ATTEMPTS = 5
_GUARD = 'read -r _; kill -QUIT "$1"; while kill -0 "$1"; do sleep 0.1; done; rm -rf "$2"'
_CONNECTIONS = 300  # all workers of a test run share a server
_FAST_SETTINGS = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


def find_postgres() -> Path | None:
    """Return the folder of the server's programs, or ``None`` where there is no server."""
    on_path = shutil.which("postgres")
    if on_path and shutil.which("initdb", path=str(Path(on_path).parent)):
        return Path(on_path).parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(versions, key=lambda program: _parse_version(program.parent.parent.name), default=None)
    return newest.parent if newest else None


class PostgresServer:
    """A server on loopback, at a free port, in a temporary folder; ``with`` starts and ends it.

    It also ends when the process that started it dies. Unless it is ``durable`` it doesn't wait for the disk.
    ``password`` makes it require one. The temporary folder is in ``parent``, or where the system has such folders.
    """

    def __init__(self, *, durable: bool = False, password: str = "", parent: Path | None = None) -> None:
        self.port = 0
        self._parent = parent
        self._durable = durable
        self._password = password
        self._folder = Path()
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return where to reach it."""
        secret = f":{self._password}" if self._password else ""
        return f"postgresql://{_USER}{secret}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="talaria-postgres-", dir=self._parent))
        try:
            self._create()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_server(signal.SIGQUIT)
        self._remove()

    def start(self) -> None:
        """Start the server: at the port it had before, or at a free one the first time."""
        for _ in range(_ATTEMPTS):
            port = self.port or free_port()
            self._launch(port)
            if self._is_ready():
                self.port = port
                return
            self._stop_server(signal.SIGQUIT)
        raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """Stop the server and disconnect its clients; its data stays for the next `start`."""
        self._stop_server(signal.SIGINT)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _create(self) -> None:
        access = ["-A", "trust"]
        if self._password:
            secret = self._folder / "password"
            secret.write_text(self._password)
            access = ["-A", "scram-sha-256", f"--pwfile={secret}"]
        if os.geteuid() == 0:
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, _ACCOUNT, pwd.getpwnam(_ACCOUNT).pw_gid)
        command = ["initdb", "-D", str(self._data), "-U", _USER, "-E", "UTF8", "--no-locale", "--no-sync", *access]
        self._run(command).wait()
        if not (self._data / "PG_VERSION").exists():
            raise RuntimeError(f"initdb failed: {self._log.read_text(errors='replace')[-2000:]}")

    def _launch(self, port: int) -> None:
        settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}"]
        settings.append(f"max_connections={_CONNECTIONS}")
        settings += [] if self._durable else _FAST_SETTINGS
        self._server = self._run(["postgres", "-D", str(self._data), *(f"--{setting}" for setting in settings)])
        # Its input ends when this process does, in whatever way; then it ends the server and clears up.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._server.pid), str(self._folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _run(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        programs = find_postgres()
        if programs is None:
            raise FileNotFoundError(MISSING)
        account = _ACCOUNT if os.geteuid() == 0 else None
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(programs / command[0]), *command[1:]],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=account,
                group=account and pwd.getpwnam(account).pw_gid,
                extra_groups=[] if account else None,
                start_new_session=True,
            )

    def _is_ready(self) -> bool:
        """Wait until the server takes connections; ``False`` if it gave up."""
        deadline = time.monotonic() + _START_SECONDS
        status = self._data / "postmaster.pid"
        while self._server is not None and self._server.poll() is None and time.monotonic() < deadline:
            lines = status.read_text().splitlines() if status.exists() else []
            if len(lines) >= 8 and lines[0] == str(self._server.pid) and lines[7].strip() == "ready":
                return True
            time.sleep(0.01)
        return False

    def _stop_server(self, by: signal.Signals) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._server is not None:
            self._server.send_signal(by)
            try:
                self._server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _parse_version(version: str) -> float:
    return float(version) if version.replace(".", "", 1).isdigit() else 0
