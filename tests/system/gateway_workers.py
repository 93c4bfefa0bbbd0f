"""Gateway workers as separate processes on one store."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from tests.app import warm_program
from tests.app.program import Program
from tests.app.warm_program import WarmProcess

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer
from talaria.testing.wait import LIMIT

LEASE = 1.0


def gateway_program(
    home: Path,
    server: ModelServer,
    network: LoopbackNetwork,
    url: str = "",
    *,
    schema: str = "",
    more: str = "",
    access: str = "everyone = true",
) -> Program:
    """Return a program whose gateway serves a network; ``url`` and ``schema`` are those of a PostgreSQL store.

    ``access`` and ``more`` are lines for the settings of access and of the gateway.
    """
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    abilities = msgspec.json.encode(network.platform().abilities).decode()
    store = f'[store]\nurl = "{url}"\n' if url else ""
    store += f'schema = "{schema}"\n' if schema else ""
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
        f"[access]\n{access}\n[gateway]\nlease_seconds = {LEASE}\ndrain_seconds = 5.0\n{more}"
        f'{store}[platforms.loopback.options]\naddress = "{network.address}"\n'
        f"abilities = '{abilities}'\n"
    )
    return Program(home)


async def start_warm_gateway(environment: dict[str, str], *arguments: str) -> WarmProcess:
    """Start a gateway as `bench.gateway_home.start_gateway` does, forked from a process that has imported it."""
    return await warm_program.start(
        "gateway",
        "run",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


@asynccontextmanager
async def worker(program: Program) -> AsyncIterator[WarmProcess]:
    """Run a worker until the block ends."""
    process = await warm_program.start("gateway", "run", "--worker", env=program.environment())
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            async with asyncio.timeout(LIMIT):
                await process.wait()
