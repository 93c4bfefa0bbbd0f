"""Load of 500 concurrent chats on a gateway, compared with as many sessions of a bare agent."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from bench.agent_server import run_model_server
from bench.gateway_child import LoadReport, Wave
from bench.gateway_process import run_process
from bench.measure import Measurement
from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "gateway-load"
_CHATS = 500
_NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True)
_TIMEOUT = 300.0


def run(quick: bool) -> list[Measurement]:
    """Measure throughput, waits, lag of the event loop, and memory per idle chat."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), waves=2 if quick else 4))


async def _measure(folder: Path, *, waves: int) -> list[Measurement]:
    async with run_model_server() as model:
        async with run_process("bare", folder / "bare", model, abilities=_NETWORK) as bare:
            bare_waves = [await bare.send_command(f"wave {_CHATS}", Wave) for _ in range(waves)]
        async with (
            LoopbackNetwork(_NETWORK) as network,
            run_process("gateway", folder / "gateway", model, network, abilities=_NETWORK) as child,
        ):
            await network.until(lambda: network.receivers > 0, seconds=30)
            await child.send_command("watch", dict)
            gateway_waves = [await _run_wave(network, 0) for _ in range(waves)]
            loaded = await child.send_command("report", LoadReport)
            for number in range(1, waves + 1):
                await _run_wave(network, number * _CHATS)
            idle = await child.send_command("report", LoadReport)
    for name, all_waves in (("bare agent", bare_waves), ("gateway", gateway_waves)):
        for number, wave in enumerate(all_waves):
            print(f"{name}, wave {number}: {_CHATS / wave.seconds:.0f} turns/s, p99 {_p99([wave]):.2f} s", flush=True)
    print(f"loop lag: p99 {loaded.lag_p99:.1f} ms, worst {loaded.lag_worst:.1f} ms", flush=True)
    print(f"memory: {loaded.memory / 2**20:.1f} MiB, then {idle.memory / 2**20:.1f} MiB", flush=True)
    label = f"{_CHATS} chats at once"
    return [
        Measurement(f"{label}: turns", _rate(gateway_waves), "/s", 0.5, floor=_rate(bare_waves), at_least=True),
        Measurement(f"{label}: p99", _p99(gateway_waves), "s", 2, floor=_p99(bare_waves)),
        Measurement(f"{label}: loop lag p99", loaded.lag_p99, "ms", 100),
        Measurement("memory per further idle chat", (idle.memory - loaded.memory) / 1024 / (_CHATS * waves), "KiB", 20),
    ]


async def _run_wave(network: LoopbackNetwork, first: int) -> Wave:
    """Write in 500 chats at the same moment, and wait for all answers."""
    post_count, before = len(network.posts), time()
    for number in range(first, first + _CHATS):
        network.say(f"c{number}", "hi", sender=f"c{number}")
    await network.until(lambda: len(network.records) >= post_count + _CHATS, seconds=_TIMEOUT)
    waits = [record.at - before for record in network.posts[post_count:]]
    return Wave(max(waits), waits)


def _rate(waves: list[Wave]) -> float:
    return len(waves) * _CHATS / sum(wave.seconds for wave in waves)


def _p99(waves: list[Wave]) -> float:
    waits = sorted(wait for wave in waves for wait in wave.waits)
    return waits[int(len(waits) * 0.99)]
