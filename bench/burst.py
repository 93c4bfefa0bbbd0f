"""Two hundred chats at once on a network with Telegram's rates and 100 ms a call, and a model that takes 2 s."""

import asyncio
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from bench.agent_server import served
from bench.gateway_child import Told
from bench.gateway_process import started
from bench.measure import Measurement
from talaria.platforms.telegram.adapter import ABILITIES
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "burst"
_CHATS = 200
_ROUND_TRIP = 0.1
_PATIENCE = 120.0


def run(quick: bool) -> list[Measurement]:
    """Measure when the replies are there, and whether anything is left next to them."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), waves=1 if quick else 3))


async def _measure(folder: Path, *, waves: int) -> list[Measurement]:
    async with (
        served() as model,
        LoopbackNetwork(ABILITIES) as network,
        started("gateway", folder, model, network, abilities=ABILITIES, name="two-seconds") as gateway,
    ):
        await network.until(lambda: network.receivers > 0, seconds=30)
        network.disrupt(delay=_ROUND_TRIP)
        waits: list[float] = []
        for number in range(waves):
            await gateway.ask("watch", dict)
            found = sorted(await _wave(network, number))
            told = await gateway.ask("told", Told)
            print(
                f"wave {number}: p50 {found[_CHATS // 2]:.2f} s, last {found[-1]:.2f} s, lag p99 {told.lag_p99:.0f} ms",
                flush=True,
            )
            waits += found
        waits.sort()
        shown = Counter(len(network.shown(f"c{chat}")) for chat in range(_CHATS))
        extra = sum(count for messages, count in shown.items() if messages != waves)
    return [
        Measurement(f"{_CHATS} chats, 2 s model: p50 of replies", waits[len(waits) // 2], "s", 5),
        Measurement(f"{_CHATS} chats, 2 s model: last reply", waits[-1], "s", 10),
        Measurement("chats with something else than one message a question", float(extra), "chats", 0),
    ]


async def _wave(network: LoopbackNetwork, wave: int) -> list[float]:
    """Write in each chat at the same moment; return when each had its full answer."""
    began, waits = time(), dict[int, float]()
    for chat in range(_CHATS):
        network.say(f"c{chat}", "hi", sender=f"c{chat}")

    def all_answered() -> bool:
        for chat in range(_CHATS):
            if chat not in waits and sum("the end." in text for text in network.shown(f"c{chat}")) > wave:
                waits[chat] = time() - began
        return len(waits) == _CHATS

    await network.until(all_answered, seconds=_PATIENCE)
    return list(waits.values())
