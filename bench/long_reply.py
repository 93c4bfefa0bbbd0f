"""Reply of 30 MB in one chat: effect on the event loop, memory and other chats."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.agent_server import run_model_server
from bench.gateway_child import LoadReport
from bench.gateway_process import run_process
from bench.measure import Measurement
from talaria.platforms.telegram.adapter import ABILITIES
from talaria.testing.loopback_platform import LoopbackNetwork

NAME = "long-reply"
_OTHER_CHATS = 5
_TIMEOUT = 120.0


def run(quick: bool) -> list[Measurement]:
    """Measure loop lag, memory and the waits in other chats, without and with the long reply."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), rounds=10 if quick else 30))


async def _measure(folder: Path, *, rounds: int) -> list[Measurement]:
    async with (
        run_model_server() as model,
        LoopbackNetwork(ABILITIES) as network,
        run_process("gateway", folder, model, network, abilities=ABILITIES, name="mixed") as gateway,
    ):
        await network.until(lambda: network.receivers > 0, seconds=30)
        await gateway.send_command("watch", dict)
        quiet_waits = await _time_answers(network, 0, rounds)
        quiet_report = await gateway.send_command("report", LoadReport)
        before = gateway.peak_memory()
        await gateway.send_command("watch", dict)
        network.say("long", "Please be long.", sender="long")
        waits = await _time_answers(network, rounds, rounds)
        await network.until(lambda: any("✂" in text for text in network.shown("long")), seconds=_TIMEOUT)
        report = await gateway.send_command("report", LoadReport)
        growth = (gateway.peak_memory() - before) / 2**20
    print(
        f"without the reply: lag worst {quiet_report.lag_worst:.0f} ms, waits up to {max(quiet_waits):.2f} s",
        flush=True,
    )
    print(
        f"30 MB: lag p99 {report.lag_p99:.0f} ms, worst {report.lag_worst:.0f} ms, waits {max(waits):.2f} s", flush=True
    )
    return [
        Measurement("30 MB reply: worst lag of the event loop", report.lag_worst, "ms", 50),
        Measurement("30 MB reply: p99 of the lag", report.lag_p99, "ms", 20),
        Measurement("30 MB reply: memory growth", growth, "MiB", 100),
        Measurement("30 MB reply: slowest answer in another chat", max(waits), "s", 1),
    ]


async def _time_answers(network: LoopbackNetwork, first: int, rounds: int) -> list[float]:
    """Ask repeatedly in other chats, and return the wait for each answer."""
    waits = []
    for number in range(first, first + rounds):
        chat = f"other{number % _OTHER_CHATS}"
        shown_before, began = len(network.shown(chat)), perf_counter()
        network.say(chat, "hi", sender=chat)
        await network.until(lambda: len(network.shown(chat)) > shown_before, seconds=_TIMEOUT)  # noqa: B023 - awaited in this iteration
        waits.append(perf_counter() - began)
        await asyncio.sleep(0.2)
    return waits
