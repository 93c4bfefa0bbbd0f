"""Five hundred chats at once through a gateway, compared with as many conversations of the bare agent."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from bench.agent_server import served
from bench.gateway_child import Told, Wave
from bench.gateway_process import started
from bench.measure import Measurement
from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "gateway-load"
_CHATS = 500
_NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True)
_PATIENCE = 300.0


def run(quick: bool) -> list[Measurement]:
    """Measure throughput, waiting times, the lag of the event loop, and the memory of conversations that are idle."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), waves=2 if quick else 4))


async def _measure(folder: Path, *, waves: int) -> list[Measurement]:
    async with served() as model:
        async with started("bare", folder / "bare", model, abilities=_NETWORK) as bare:
            bares = [await bare.ask(f"wave {_CHATS}", Wave) for _ in range(waves)]
        async with (
            LoopbackNetwork(_NETWORK) as network,
            started("gateway", folder / "gateway", model, network, abilities=_NETWORK) as child,
        ):
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
        Measurement(f"{what}: turns", _rate(ours), "/s", 0.5, floor=_rate(bares), at_least=True),
        Measurement(f"{what}: p99", _p99(ours), "s", 2, floor=_p99(bares)),
        Measurement(f"{what}: loop lag p99", loaded.lag_p99, "ms", 100),
        Measurement("each further idle chat", (told.memory - loaded.memory) / 1024 / (_CHATS * waves), "KiB", 20),
    ]


async def _wave(network: LoopbackNetwork, first: int) -> Wave:
    """Write in each chat at the same moment, and wait for all answers."""
    seen, before = len(network.posts), time()
    for number in range(first, first + _CHATS):
        network.say(f"c{number}", "hi", sender=f"c{number}")
    await network.until(lambda: len(network.records) >= seen + _CHATS, seconds=_PATIENCE)
    waits = [record.at - before for record in network.posts[seen:]]
    return Wave(max(waits), waits)


def _rate(waves: list[Wave]) -> float:
    return len(waves) * _CHATS / sum(wave.seconds for wave in waves)


def _p99(waves: list[Wave]) -> float:
    waits = sorted(wait for wave in waves for wait in wave.waits)
    return waits[int(len(waits) * 0.99)]
