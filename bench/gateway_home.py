"""Profile for a gateway with a loopback network and a scripted model, and its gateway process."""

import asyncio
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from bench.measure import command_path
from talaria.contracts.platform import PlatformCapabilities


class GatewayProcess(Protocol):
    """Running gateway: the part of `asyncio.subprocess.Process` that benchmarks use."""

    @property
    def returncode(self) -> int | None:
        """The exit code, once the process has ended."""

    def send_signal(self, signal: int, /) -> None:
        """Send a signal."""

    def terminate(self) -> None:
        """Ask the process to end."""

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""


class StartGateway(Protocol):
    """Function that starts a gateway, like `start_gateway`."""

    async def __call__(self, environment: dict[str, str], *arguments: str) -> GatewayProcess:
        """Start a gateway; the caller ends it."""


def prepare_home(
    home: Path, model: str, network: str, abilities: PlatformCapabilities, *, server: str = "", lease: float = 1.0
) -> dict[str, str]:
    """Write the settings and return the gateway's environment; ``server`` is the URL of a PostgreSQL store."""
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    encoded = msgspec.json.encode(abilities).decode()
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        '[access]\neveryone = true\nowners = ["loopback:owner"]\n[gateway]\n'
        f"lease_seconds = {lease}\n[platforms.loopback.options]\naddress = \"{network}\"\nabilities = '{encoded}'\n"
        + (f'[store]\nurl = "{server}"\n' if server else "")
    )
    return {"HOME": str(home), "TALARIA_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}


async def start_gateway(environment: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    """Start a gateway; the caller ends it."""
    return await asyncio.create_subprocess_exec(
        command_path("talaria"), "gateway", "run", *arguments, env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
