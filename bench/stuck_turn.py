"""Delay of `/status` and `/stop` while a model, a tool, a question or a delivery never ends."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.gateway_home import prepare_home, start_gateway
from bench.measure import Measurement
from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import Ask, ModelServer, Say, Silence
from talaria.testing.model_server.exchange import Received

NAME = "stuck-turn"
_ABILITIES = PlatformCapabilities(text_limit=4096, buttons=True)
_GOAL_MS = 1000.0


@dataclass(frozen=True)
class _Hang:
    """Dependency that hangs: the model's answer to the first call of a turn, and faults of the network."""

    name: str
    answer: Say | Silence
    faults: Sequence[Fault] = ()


_HANGS = (
    _Hang("model", Silence(after=0)),
    _Hang("model mid-reply", Silence(after=2)),
    _Hang("tool", Say(calls=[Ask("terminal", {"command": "sleep 3600"})])),
    _Hang("question", Say(calls=[Ask("clarify", {"question": "Tea or milk?"})])),
    _Hang("delivery", Say("hello"), (Fault("post", "delay", times=0, chat_id="stuck", seconds=3600),)),
)


def run(quick: bool) -> list[Measurement]:
    """Measure each hanging dependency in a few chats."""
    return asyncio.run(_measure(3 if quick else 15))


async def _measure(rounds: int) -> list[Measurement]:
    measurements = []
    async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
        with TemporaryDirectory() as folder:
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES)
            gateway = await start_gateway(environment)
            try:
                for hang in _HANGS:
                    measurements += await _measure_hang(hang, server, network, rounds)
            finally:
                gateway.terminate()
                await gateway.wait()
    return measurements


async def _measure_hang(hang: _Hang, server: ModelServer, network: LoopbackNetwork, rounds: int) -> list[Measurement]:
    """Send `/status` and `/stop` in chats whose turn hangs, or `/status` in others while one delivery hangs."""
    network.disrupt(*hang.faults)
    server.answering(lambda received: Say("ok") if _has_results(received) else hang.answer)
    status, stop = [], []
    for number in range(rounds):
        chat = f"{hang.name}-{number}"
        calls = len(server.received)
        network.say("stuck" if hang.faults else chat, "begin", sender="owner")
        async with asyncio.timeout(30):
            await server.arrived(calls + 1)
        status.append(await _time_reply(network, chat, "/status", lambda text: "Turn:" in text))
        if not hang.faults:
            stop.append(await _time_reply(network, chat, "/stop", lambda text: text == "Stopped."))
    measurements = [Measurement(f"{hang.name} hangs: /status, worst of {rounds}", max(status), "ms", _GOAL_MS)]
    if stop:
        measurements.append(Measurement(f"{hang.name} hangs: /stop, worst of {rounds}", max(stop), "ms", _GOAL_MS))
    return measurements


async def _time_reply(network: LoopbackNetwork, chat: str, text: str, matches: Callable[[str], bool]) -> float:
    began = perf_counter()
    network.say(chat, text, sender="owner")
    await network.until(lambda: any(map(matches, network.shown(chat))), seconds=30)
    return (perf_counter() - began) * 1000


def _has_results(received: Received) -> bool:
    return any(message["role"] == "tool" for message in received.json["messages"])
