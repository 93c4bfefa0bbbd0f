"""A model that does not stop: 30 MB in one chat, and what that does to the event loop, memory and other chats."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.agent_server import served
from bench.gateway_child import Told
from bench.gateway_process import started
from bench.measure import Measurement
from talaria.platforms.telegram.adapter import ABILITIES
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "long-reply"
_OTHERS = 5
_PATIENCE = 120.0


def run(quick: bool) -> list[Measurement]:
    """Measure loop lag, memory and the waits of calm chats, without and with the long reply."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), rounds=10 if quick else 30))


async def _measure(folder: Path, *, rounds: int) -> list[Measurement]:
    async with (
        served() as model,
        LoopbackNetwork(ABILITIES) as network,
        started("gateway", folder, model, network, abilities=ABILITIES, name="mixed") as gateway,
    ):
        await network.until(lambda: network.receivers > 0, seconds=30)
        await gateway.ask("watch", dict)
        calm = await _questions(network, 0, rounds)
        calm_told = await gateway.ask("told", Told)
        before = gateway.peak_memory()
        await gateway.ask("watch", dict)
        network.say("long", "Please be long.", sender="long")
        waits = await _questions(network, rounds, rounds)
        await network.until(lambda: any("✂" in text for text in network.shown("long")), seconds=_PATIENCE)
        told = await gateway.ask("told", Told)
        grown = (gateway.peak_memory() - before) / 2**20
    print(f"calm: lag worst {calm_told.lag_worst:.0f} ms, waits up to {max(calm):.2f} s", flush=True)
    print(f"30 MB: lag p99 {told.lag_p99:.0f} ms, worst {told.lag_worst:.0f} ms, waits {max(waits):.2f} s", flush=True)
    return [
        Measurement("30 MB reply: worst lag of the event loop", told.lag_worst, "ms", 50),
        Measurement("30 MB reply: p99 of the lag", told.lag_p99, "ms", 20),
        Measurement("30 MB reply: memory beyond before", grown, "MiB", 100),
        Measurement("30 MB reply: slowest answer in another chat", max(waits), "s", 1),
    ]


async def _questions(network: LoopbackNetwork, first: int, rounds: int) -> list[float]:
    """Ask repeatedly in calm chats, and return how long each answer took."""
    waits = []
    for number in range(first, first + rounds):
        chat = f"calm{number % _OTHERS}"
        seen, began = len(network.shown(chat)), perf_counter()
        network.say(chat, "hi", sender=chat)
        await network.until(lambda: len(network.shown(chat)) > seen, seconds=_PATIENCE)  # noqa: B023 - waited for here
        waits.append(perf_counter() - began)
        await asyncio.sleep(0.2)
    return waits
