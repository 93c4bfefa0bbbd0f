"""Gateway on a loopback network, or bare agent, in its own process that reports lag and memory."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork

T = TypeVar("T")


class ProcessUnderLoad:
    """Process of `bench.gateway_child`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send_command(self, line: str, kind: type[T]) -> T:
        """Send a command line and return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        return msgspec.json.decode(await self._process.stdout.readline(), type=kind)

    def peak_memory(self) -> int:
        """Return the peak memory of the process, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@asynccontextmanager
async def run_process(
    kind: str,
    home: Path,
    model: str,
    network: LoopbackNetwork | None = None,
    *,
    abilities: PlatformCapabilities,
    name: str = "short",
) -> AsyncIterator[ProcessUnderLoad]:
    """Run a ``gateway`` or a ``bare`` agent with the model ``name`` of the model server at ``model``."""
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    encoded = msgspec.json.encode(abilities).decode()
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "{name}"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        "[access]\neveryone = true\n"
        + (
            f"[platforms.loopback.options]\naddress = \"{network.address}\"\nabilities = '{encoded}'\n"
            if network
            else ""
        )
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.gateway_child", kind, str(home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield ProcessUnderLoad(process)
    finally:
        process.kill()
        await process.wait()
