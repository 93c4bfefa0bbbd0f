"""A gateway on a loopback network, or a bare agent, in a process of its own that answers questions about itself."""

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
    """A process of `bench.gateway_child`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, line: str, kind: type[T]) -> T:
        """Return its answer to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        return msgspec.json.decode(await self._process.stdout.readline(), type=kind)

    def peak_memory(self) -> int:
        """Return the most memory that it had so far, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@asynccontextmanager
async def started(
    what: str,
    home: Path,
    model: str,
    network: LoopbackNetwork | None = None,
    *,
    abilities: PlatformCapabilities,
    name: str = "words",
) -> AsyncIterator[ProcessUnderLoad]:
    """Start a ``gateway`` or a ``bare`` agent with the model of this name."""
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    able = msgspec.json.encode(abilities).decode()
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "{name}"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        "[access]\neveryone = true\n"
        + (f"[platforms.loopback.options]\naddress = \"{network.address}\"\nabilities = '{able}'\n" if network else "")
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.gateway_child", what, str(home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield ProcessUnderLoad(process)
    finally:
        process.kill()
        await process.wait()
