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
_SECOND = 1000.0


@dataclass(frozen=True)
class _Border:
    """Where it hangs: what the model answers to the first call of a turn, and what goes wrong with a network."""

    name: str
    answer: Say | Silence
    faults: Sequence[Fault] = ()


_BORDERS = (
    _Border("model", Silence(after=0)),
    _Border("model, in the middle", Silence(after=2)),
    _Border("tool", Say(calls=[Ask("terminal", {"command": "sleep 3600"})])),
    _Border("question", Say(calls=[Ask("clarify", {"question": "Tea or milk?"})])),
    _Border("send", Say("hello"), (Fault("post", "delay", times=0, chat_id="stuck", seconds=3600),)),
)


def run(quick: bool) -> list[Measurement]:
    """Measure each border in a few chats."""
    return asyncio.run(_measure(3 if quick else 15))


async def _measure(rounds: int) -> list[Measurement]:
    figures = []
    async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
        with TemporaryDirectory() as folder:
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES)
            gateway = await start_gateway(environment)
            try:
                for border in _BORDERS:
                    figures += await _measure_hang(border, server, network, rounds)
            finally:
                gateway.terminate()
                await gateway.wait()
    return figures


async def _measure_hang(
    border: _Border, server: ModelServer, network: LoopbackNetwork, rounds: int
) -> list[Measurement]:
    """Let one chat hang, and use `/status` and `/stop` in others that hang too, or in other chats."""
    network.disrupt(*border.faults)
    server.answering(lambda received: Say("ok") if _has_results(received) else border.answer)
    status, stop = [], []
    for number in range(rounds):
        chat = f"{border.name}-{number}"
        calls = len(server.received)
        network.say("stuck" if border.faults else chat, "begin", sender="owner")
        async with asyncio.timeout(30):
            await server.arrived(calls + 1)
        status.append(await _answered(network, chat, "/status", lambda text: "Turn:" in text))
        if not border.faults:
            stop.append(await _answered(network, chat, "/stop", lambda text: text == "Stopped."))
    figures = [Measurement(f"{border.name} hangs: /status, worst of {rounds}", max(status), "ms", _SECOND)]
    if stop:
        figures.append(Measurement(f"{border.name} hangs: /stop, worst of {rounds}", max(stop), "ms", _SECOND))
    return figures


async def _answered(network: LoopbackNetwork, chat: str, text: str, is_it: Callable[[str], bool]) -> float:
    began = perf_counter()
    network.say(chat, text, sender="owner")
    await network.until(lambda: any(map(is_it, network.shown(chat))), seconds=30)
    return (perf_counter() - began) * 1000


def _has_results(received: Received) -> bool:
    return any(message["role"] == "tool" for message in received.json["messages"])
