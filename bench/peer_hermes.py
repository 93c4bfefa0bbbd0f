"""Hermes Agent as a peer, installed into its own virtual environment and configured for a model server."""

import asyncio
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from bench.api_servers import Server
from bench.measure import bytecode_environment
from talaria.core.os_processes import kill_tree

# Its API server needs aiohttp, which only extras install; this extra installs nothing else.
PACKAGE = "hermes-agent[sms]==0.19.0"

_FOLDER = Path(__file__).parent.parent / ".bench" / "hermes"
_INSTALLED = _FOLDER / "installed"
_SETTINGS = """\
model:
  provider: custom
  default: {model}
  base_url: {url}/v1
  api_key: none
  context_length: 128000
gateway:
  api_server:
    max_concurrent_runs: 0
"""
_SECONDS_TO_START = 60


def install() -> str:
    """Return the path of the command `hermes`, after installing it if needed."""
    if not _INSTALLED.exists() or _INSTALLED.read_text() != PACKAGE:
        print(f"Installing {PACKAGE} into {_FOLDER}: 228 MB, a few minutes.", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", _FOLDER], check=True)
        subprocess.run([_FOLDER / "bin" / "pip", "install", "--quiet", PACKAGE], check=True)
        _INSTALLED.write_text(PACKAGE)
    return str(_FOLDER / "bin" / "hermes")


def prepare(home: Path, url: str, *, model: str = "scripted") -> dict[str, str]:
    """Create a home configured for the model server at ``url``, and return an environment that uses it.

    The default limit of ten concurrent requests is removed.
    """
    home.mkdir()
    (home / "config.yaml").write_text(_SETTINGS.format(model=model, url=url))
    return {"HERMES_HOME": str(home), "HOME": str(home)}


@asynccontextmanager
async def api_server(url: str, *, model: str) -> AsyncIterator[Server]:
    """Run the gateway with only the API server, which uses the model server at ``url``."""
    command, key, port = install(), secrets.token_hex(16), _free_port()
    with TemporaryDirectory() as folder:
        home = Path(folder) / "hermes"
        environment = bytecode_environment() | prepare(home, url, model=model)
        environment |= {"API_SERVER_ENABLED": "true", "API_SERVER_KEY": key, "API_SERVER_PORT": str(port)}
        process = await asyncio.create_subprocess_exec(
            command, "gateway", "run", "--quiet", env=environment, cwd=home, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            server = Server(f"http://127.0.0.1:{port}", process.pid, key)
            await _wait_until_ready(server, process)
            yield server
        finally:
            kill_tree(process.pid)
            await process.wait()


async def _wait_until_ready(server: Server, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(_SECONDS_TO_START), aiohttp.ClientSession() as http:
        while process.returncode is None:
            try:
                async with http.get(f"{server.url}/health") as answer:
                    answer.raise_for_status()
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
    sys.exit(f"The gateway of {PACKAGE} ended with exit code {process.returncode} before it answered.")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
