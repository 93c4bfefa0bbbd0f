"""A real Matrix homeserver on loopback, for tests: Synapse, from an environment of its own."""

import base64
import fcntl
import hashlib
import hmac
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from talaria.testing.system_servers import free_port

MISSING = "No Matrix homeserver is installed; `make test` installs it where pip can"
_PYTHON = Path(__file__).parents[3] / ".homeserver" / "bin" / "python"
_SECRET = "registration for tests"  # noqa: S105 -- of a server that lives as long as a test run
_PASSWORD = "correct horse"  # noqa: S105 -- the same
_START_SECONDS = 90
_STOP_SECONDS = 20
_CALL_SECONDS = 60
_ATTEMPTS = 3
_NO_RATE_LIMIT = {"per_second": 1000, "burst_count": 1000}
_GUARD = 'read -r _; kill -TERM "$1"; while kill -0 "$1"; do sleep 0.1; done; rm -rf "$2"'


class Refusal(Exception):
    """An error answer of the homeserver."""


class Account(Struct, frozen=True):
    """A user account."""

    user_id: str
    token: str
    password: str


def find_homeserver() -> Path | None:
    """Return the Python that has the homeserver, or ``None`` where it is not installed."""
    return _PYTHON if (_PYTHON.parent / "synapse_homeserver").exists() else None


class HomeserverClient(Struct, frozen=True):
    """A client for a homeserver, which creates accounts there."""

    url: str

    def register(self, name: str, *, admin: bool = False) -> Account:
        """Make an account; its name must be new."""
        path = "/_synapse/admin/v1/register"
        nonce = self.call("GET", path)["nonce"]
        mac_fields = [nonce, name, _PASSWORD, "admin" if admin else "notadmin"]
        mac = hmac.new(_SECRET.encode(), "\x00".join(mac_fields).encode(), hashlib.sha1).hexdigest()
        registration = {"nonce": nonce, "username": name, "password": _PASSWORD, "admin": admin, "mac": mac}
        registered = self.call("POST", path, registration)
        return Account(registered["user_id"], registered["access_token"], _PASSWORD)

    def log_in(self, account: Account) -> Account:
        """Return the account with the token of a new device."""
        login = {"identifier": {"type": "m.id.user", "user": account.user_id}, "password": account.password}
        answer = self.call("POST", "/_matrix/client/v3/login", {"type": "m.login.password", **login})
        return msgspec.structs.replace(account, token=answer["access_token"])

    def call(self, method: str, path: str, body: object = None, *, token: str = "") -> Any:
        """Ask the homeserver something over plain HTTP, as any client could; raises `Refusal`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)  # noqa: S310 -- loopback
        request.add_header("Content-Type", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=_CALL_SECONDS) as answer:  # noqa: S310 -- loopback
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise Refusal(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error


class Homeserver:
    """A server at a free port, in a temporary folder; ``with`` starts and ends it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.port = 0
        self._given_folder = folder
        self._folder = folder or Path()
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def homeserver_client(self) -> HomeserverClient:
        """Return its client."""
        return HomeserverClient(f"http://127.0.0.1:{self.port}")

    def __enter__(self) -> Self:
        self._folder = self._given_folder or Path(tempfile.mkdtemp(prefix="talaria-homeserver-"))
        self._folder.mkdir(exist_ok=True)
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._remove()

    def start(self) -> None:
        """Start the server: at the port it had before, or at a free one the first time."""
        for _ in range(_ATTEMPTS):
            port = self.port or free_port()
            self._configure(port)
            self._launch()
            if self._is_ready(port):
                self.port = port
                return
            self.stop()
        log = self._folder / "out"
        raise RuntimeError(f"the homeserver did not start: {log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """Stop the server; its data stays for the next `start`."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._server is None:
            return
        self._server.send_signal(signal.SIGTERM)
        try:
            self._server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None

    def _configure(self, port: int) -> None:
        (self._folder / "log.json").write_text(json.dumps(_make_logging_settings(self._folder)))
        (self._folder / "homeserver.json").write_text(json.dumps(_make_settings(self._folder, port)))

    def _launch(self) -> None:
        self._server = self._run()
        # Its input ends when this process does, in whatever way; then it ends the server and clears up.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._server.pid), str(self._folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _run(self) -> subprocess.Popen[bytes]:
        python = find_homeserver()
        if python is None:
            raise FileNotFoundError(MISSING)
        settings = str(self._folder / "homeserver.json")
        program = [str(python), "-m", "synapse.app.homeserver", "-c", settings]
        key = self._folder / "signing.key"
        if not key.exists():
            key.write_text(f"ed25519 a_test {_make_signing_seed()}\n")
        with (self._folder / "out").open("ab") as out:
            return subprocess.Popen(
                program,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _is_ready(self, port: int) -> bool:
        """Wait until the server answers; ``False`` if it gave up."""
        deadline = time.monotonic() + _START_SECONDS
        there = HomeserverClient(f"http://127.0.0.1:{port}")
        while self._server is not None and self._server.poll() is None and time.monotonic() < deadline:
            try:
                there.call("GET", "/_matrix/client/versions")
            except (OSError, ValueError, Refusal):  # refused by another server, which was faster to take the port
                time.sleep(0.05)
            else:
                return True
        return False

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def shared_homeserver(folder: Path) -> Iterator[HomeserverClient]:
    """Share the server of a folder between processes: the first starts it, the last one ends it.

    It also ends when all of them are killed: each holds a lock, and who keeps the server waits for all of these.
    """
    folder.mkdir(exist_ok=True)
    note = folder / "server" / "reception.json"
    with (folder / "users.lock").open("w") as users, (folder / "start.lock").open("w") as starting:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not note.exists():
            _start_shared_process(folder, note)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield msgspec.json.decode(note.read_bytes(), type=HomeserverClient)


def run_shared_homeserver(folder: Path) -> None:
    """Start the server of a folder, record its address, and stop it when no process uses it."""
    note = folder / "server" / "reception.json"
    with Homeserver(note.parent) as server, (folder / "users.lock").open() as users:
        draft = note.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(server.homeserver_client))
        draft.rename(note)
        fcntl.flock(users, fcntl.LOCK_EX)
        note.unlink()


def _start_shared_process(folder: Path, note: Path) -> None:
    # The shell ends at once, so that the keeper is nobody's child and needs nobody to wait for it.
    own_session = '"$@" </dev/null >/dev/null 2>"$0" &'
    shared_process = [sys.executable, "-m", "talaria.testing.homeserver", str(folder)]
    errors = folder / "errors"
    subprocess.run(["/bin/sh", "-c", own_session, str(errors), *shared_process], check=True, start_new_session=True)
    deadline = time.monotonic() + _START_SECONDS
    while not note.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the homeserver did not start: {errors.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def _make_settings(folder: Path, port: int) -> dict[str, object]:
    return {
        "server_name": "localhost",
        "signing_key_path": str(folder / "signing.key"),
        "media_store_path": str(folder / "media"),
        "log_config": str(folder / "log.json"),
        "report_stats": False,
        "trusted_key_servers": [],
        "suppress_key_server_warning": True,
        "federation_domain_whitelist": [],
        "registration_shared_secret": _SECRET,
        "macaroon_secret_key": "m",
        "form_secret": "f",
        "bcrypt_rounds": 4,
        "presence": {"enabled": False},
        "push": {"enabled": False},
        "stats": {"enabled": False},
        "user_directory": {"enabled": False},
        "max_upload_size": "5M",
        "listeners": [
            {
                "port": port,
                "bind_addresses": ["127.0.0.1"],
                "type": "http",
                "tls": False,
                "resources": [{"names": ["client", "media"]}],
            }
        ],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
        "rc_message": _NO_RATE_LIMIT,
        "rc_registration": _NO_RATE_LIMIT,
        "rc_login": {"address": _NO_RATE_LIMIT, "account": _NO_RATE_LIMIT, "failed_attempts": _NO_RATE_LIMIT},
        "rc_room_creation": _NO_RATE_LIMIT,
        "rc_joins": {"local": _NO_RATE_LIMIT},
        "rc_invites": {"per_room": _NO_RATE_LIMIT, "per_user": _NO_RATE_LIMIT, "per_issuer": _NO_RATE_LIMIT},
    }


def _make_signing_seed() -> str:
    """Return the private part of a signing key; the homeserver's own generator would take a second to start."""
    return base64.b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


def _make_logging_settings(folder: Path) -> dict[str, object]:
    return {
        "version": 1,
        "formatters": {"line": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
        "handlers": {
            "file": {"class": "logging.FileHandler", "filename": str(folder / "log"), "formatter": "line"},
        },
        "root": {"level": "WARNING", "handlers": ["file"]},
        "disable_existing_loggers": False,
    }


if __name__ == "__main__":
    run_shared_homeserver(Path(sys.argv[1]))
