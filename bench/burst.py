"""Burst of messages in 200 chats: Telegram's rate limits, 100 ms per call, a model that takes 2 s."""

import asyncio
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from bench.agent_server import run_model_server
from bench.gateway_child import LoadReport
from bench.gateway_process import run_process
from bench.measure import Measurement
from talaria.platforms.telegram.adapter import ABILITIES
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "burst"
_CHATS = 200
_ROUND_TRIP = 0.1
_TIMEOUT = 120.0


def run(quick: bool) -> list[Measurement]:
    """Measure the waits for replies, and count chats with missing or additional messages."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), waves=1 if quick else 3))


async def _measure(folder: Path, *, waves: int) -> list[Measurement]:
    async with (
        run_model_server() as model,
        LoopbackNetwork(ABILITIES) as network,
        run_process("gateway", folder, model, network, abilities=ABILITIES, name="two-seconds") as gateway,
    ):
        await network.until(lambda: network.receivers > 0, seconds=30)
        network.disrupt(delay=_ROUND_TRIP)
        waits: list[float] = []
        for number in range(waves):
            await gateway.send_command("watch", dict)
            wave_waits = sorted(await _run_wave(network, number))
            report = await gateway.send_command("report", LoadReport)
            print(
                f"wave {number}: p50 {wave_waits[_CHATS // 2]:.2f} s, last {wave_waits[-1]:.2f} s,"
                f" lag p99 {report.lag_p99:.0f} ms",
                flush=True,
            )
            waits += wave_waits
        waits.sort()
        counts = Counter(len(network.shown(f"c{chat}")) for chat in range(_CHATS))
        wrong = sum(count for messages, count in counts.items() if messages != waves)
    return [
        Measurement(f"{_CHATS} chats, 2 s model: p50 of replies", waits[len(waits) // 2], "s", 5),
        Measurement(f"{_CHATS} chats, 2 s model: last reply", waits[-1], "s", 10),
        Measurement("chats without exactly one message per question", float(wrong), "chats", 0),
    ]


async def _run_wave(network: LoopbackNetwork, wave: int) -> list[float]:
    """Write in each chat at the same moment; return the wait of each for its full answer."""
    began, waits = time(), dict[int, float]()
    for chat in range(_CHATS):
        network.say(f"c{chat}", "hi", sender=f"c{chat}")

    def all_answered() -> bool:
        for chat in range(_CHATS):
            if chat not in waits and sum("the end." in text for text in network.shown(f"c{chat}")) > wave:
                waits[chat] = time() - began
        return len(waits) == _CHATS

    await network.until(all_answered, seconds=_TIMEOUT)
    return list(waits.values())
