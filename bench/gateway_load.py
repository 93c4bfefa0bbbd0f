"""Five hundred chats at once through a gateway, beside as many conversations of the bare agent, instantly answered."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import TypeVar

import msgspec

from bench.agent_server import served
from bench.gateway_child import Told, Wave
from bench.measure import Figure
from talaria.contracts.platform import Abilities
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "gateway_load"
_CHATS = 500
_NETWORK = Abilities(text_limit=4096, idempotent=True)
_PATIENCE = 300.0
T = TypeVar("T")


def run(quick: bool) -> list[Figure]:
    """Measure throughput, waiting times, the lag of the event loop, and the memory of conversations that are idle."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), waves=2 if quick else 4))


class _Child:
    """A process under load."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, line: str, kind: type[T]) -> T:
        """Return what it says to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        return msgspec.json.decode(await self._process.stdout.readline(), type=kind)


async def _measure(folder: Path, *, waves: int) -> list[Figure]:
    async with served() as model:
        async with _child("bare", folder / "bare", model) as bare:
            bares = [await bare.ask(f"wave {_CHATS}", Wave) for _ in range(waves)]
        async with LoopbackNetwork(_NETWORK) as network, _child("gateway", folder / "gateway", model, network) as child:
            await network.until(lambda: network.receivers > 0, seconds=30)
            await child.ask("watch", dict)
            ours = [await _wave(network, 0) for _ in range(waves)]
            loaded = await child.ask("told", Told)
            for number in range(1, waves + 1):
                await _wave(network, number * _CHATS)
            told = await child.ask("told", Told)
    for name, some in (("bare agent", bares), ("gateway", ours)):
        for number, wave in enumerate(some):
            print(f"{name}, wave {number}: {_CHATS / wave.seconds:.0f} turns/s, p99 {_p99([wave]):.2f} s", flush=True)
    print(f"loop lag: p99 {loaded.lag_p99:.1f} ms, worst {loaded.lag_worst:.1f} ms", flush=True)
    print(f"memory: {loaded.memory / 2**20:.1f} MiB, then {told.memory / 2**20:.1f} MiB", flush=True)
    what = f"{_CHATS} chats at once"
    return [
        Figure(f"{what}: turns", _rate(ours), "/s", 0.5, floor=_rate(bares), at_least=True),
        Figure(f"{what}: p99", _p99(ours), "s", 2, floor=_p99(bares)),
        Figure(f"{what}: loop lag p99", loaded.lag_p99, "ms", 100),
        Figure("each further idle chat", (told.memory - loaded.memory) / 1024 / (_CHATS * waves), "KiB", 20),
    ]


async def _wave(network: LoopbackNetwork, first: int) -> Wave:
    """Let somebody write in each of the chats at the same moment, and wait until all have their answer."""
    seen, before = len(network.posts), time()
    for number in range(first, first + _CHATS):
        network.say(f"c{number}", "hi", sender=f"c{number}")
    await network.until(lambda: len(network.records) >= seen + _CHATS, seconds=_PATIENCE)
    waits = [record.at - before for record in network.posts[seen:]]
    return Wave(max(waits), waits)


@asynccontextmanager
async def _child(what: str, home: Path, model: str, network: LoopbackNetwork | None = None) -> AsyncIterator[_Child]:
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    abilities = msgspec.json.encode(_NETWORK).decode()
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "words"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        "[access]\neveryone = true\n"
        + (
            f"[platforms.loopback.options]\naddress = \"{network.address}\"\nabilities = '{abilities}'\n"
            if network
            else ""
        )
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.gateway_child", what, str(home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield _Child(process)
    finally:
        process.kill()
        await process.wait()


def _rate(waves: list[Wave]) -> float:
    return len(waves) * _CHATS / sum(wave.seconds for wave in waves)


def _p99(waves: list[Wave]) -> float:
    waits = sorted(wait for wave in waves for wait in wave.waits)
    return waits[int(len(waits) * 0.99)]
