"""A third-party Slack emulation on this machine, for a second opinion in tests."""

import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from talaria.testing.system_servers import free_port

MISSING = "No local-slack is installed; `make localslack` installs it where npm can"
TOKEN = "xoxb-test-token"  # noqa: S105 -- of an app that exists in tests only
APP_TOKEN = "xapp-test-token"  # noqa: S105 -- the same
CHANNEL = "C01GEN"
ALICE = "U01ALICE"
BOT = "U0BOT"
_PROGRAM = Path(__file__).parents[3] / ".local-slack/node_modules/local-slack-linux-x64/bin/local-slack"
_START_SECONDS = 30
_STOP_SECONDS = 10
_CALL_SECONDS = 20
_GUARD = 'read -r _; kill -TERM "$1"'


def find_local_slack() -> Path | None:
    """Return the program, or ``None`` where it is not installed."""
    return _PROGRAM if _PROGRAM.exists() else None


class LocalSlack:
    """A workspace with Alice, a channel and our app, at a free port; ``with`` starts and ends it."""

    def __init__(self) -> None:
        self.url = ""
        self._folder = Path()
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """Return what stands before the methods."""
        return f"{self.url}/api/"

    def __enter__(self) -> Self:
        program = find_local_slack()
        if program is None:
            raise FileNotFoundError(MISSING)
        self._folder = Path(tempfile.mkdtemp(prefix="talaria-local-slack-"))
        (self._folder / "workspace.yaml").write_text(json.dumps(_WORKSPACE))  # which is YAML as well
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            "--config",
            "workspace.yaml",
            "--port",
            str(port),
            "--base-host",
            "127.0.0.1",
            "--files-dir",
            "files",
        ]
        with (self._folder / "out").open("wb") as out:
            self._server = subprocess.Popen(
                [str(program), *command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        # Its input ends when this process does, in whatever way; then it ends the server.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._server.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._wait_until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def act(self, proposed_action: str, **details: object) -> Any:
        """Let Alice do something in the channel; returns when the app has acknowledged it, or did not for long."""
        return self._call(f"/_control/{proposed_action}", {"channel": CHANNEL, "user": ALICE, **details})

    def call(self, method: str, **details: object) -> Any:
        """Ask the Web API something."""
        return self._call(f"/api/{method}", details)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.call("auth.test")
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline:
                    self.__exit__(None, None, None)
                    raise RuntimeError("local-slack did not start") from error
                time.sleep(0.05)
            else:
                return

    def _call(self, path: str, body: dict[str, object]) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)  # noqa: S310 -- loopback
        with urllib.request.urlopen(request, timeout=_CALL_SECONDS) as answer:  # noqa: S310 -- loopback
            return json.load(answer)


_WORKSPACE = {
    "workspace": {"name": "Test", "domain": "test", "teamId": "T01TEST"},
    "app": {
        "appId": "A01APP",
        "botUserId": BOT,
        "botName": "agent",
        "botToken": TOKEN,
        "appToken": APP_TOKEN,
        "signingSecret": "s3cret",
        "mode": "socket",
    },
    "users": [{"id": ALICE, "name": "alice", "real_name": "Alice", "email": "alice@test.local"}],
    "channels": [{"id": CHANNEL, "name": "general", "members": [ALICE, BOT]}],
}
