"""A dependency that never answers: `/stop` and `/status` work, people get a notice, and later messages are answered.

`python -m bench stuck-turn` measures the delay; these tests only check that it happens.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest
from tests.gateway.in_process_gateway import InProcessGateway, run_gateway

from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Transaction
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import Ask, ModelServer, Say, Silence
from talaria.testing.model_server.exchange import Received

NETWORK = PlatformCapabilities(text_limit=4096, buttons=True, idempotent=True)
OWNED = 'owners = ["loopback:ann"]\n'


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(NETWORK) as network:
        yield network


async def wait_for_text(network: LoopbackNetwork, chat: str, part: str) -> None:
    """Wait until a text is shown in a chat."""
    await network.until(lambda: any(part in text for text in network.shown(chat)))


async def status_and_stop(network: LoopbackNetwork, server: ModelServer, chat: str = "ann") -> None:
    """Check that `/status` and `/stop` work, and that the next message is answered."""
    network.say(chat, "/status", sender=chat)
    await wait_for_text(network, chat, "Turn: running")
    network.say(chat, "/stop", sender=chat)
    await wait_for_text(network, chat, "Stopped.")
    server.answering(lambda received: Say(f"re: {received.question}"))
    network.say(chat, "and now?", sender=chat)
    await network.until(lambda: "re: and now?" in network.shown(chat))


@pytest.mark.parametrize("answer", [Silence(after=0), Silence(after=2)], ids=["no-answer", "half-an-answer"])
async def test_status_and_stop_work_while_the_model_never_answers(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, answer: Silence
) -> None:
    server.answering(lambda _: answer)
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED):
        network.say("ann", "think")
        await server.arrived(1)
        network.say("bob", "/status", sender="bob")
        await wait_for_text(network, "bob", "Turn: not running")
        await status_and_stop(network, server)


async def test_model_that_never_answers_times_out_and_is_reported(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda _: Silence(after=0))
    impatient = "connect_timeout_seconds = 0.5\nfirst_timeout_seconds = 0.2\nsilence_timeout_seconds = 0.2\n"
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED, provider=impatient):
        network.say("ann", "think")
        (post,) = await network.posted(1)
        assert "model" in post.text or "provider" in post.text or "answer" in post.text
        server.answering(lambda received: Say(f"re: {received.question}"))
        network.say("ann", "and now?")
        await network.until(lambda: "re: and now?" in network.shown("ann"))


async def test_status_and_stop_work_while_a_tool_never_ends(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "sleep 600"})]))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED):
        network.say("ann", "wait")
        await server.arrived(1)
        await status_and_stop(network, server)


async def test_status_and_stop_work_while_a_question_is_unanswered(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.script(Say(calls=[Ask("clarify", {"question": "Tea?"})]))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED):
        network.say("ann", "ask me")
        await wait_for_text(network, "ann", "Tea?")
        await status_and_stop(network, server)


async def test_network_that_never_confirms_posts_to_one_chat_does_not_delay_another(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    network.disrupt(Fault("post", "delay", times=0, chat_id="bob", seconds=3600))
    async with run_gateway(tmp_path, network.platform(), server.url, settings=OWNED):
        network.say("bob", "hello", sender="bob")
        await server.arrived(1)
        network.say("ann", "/status")
        await wait_for_text(network, "ann", "Turn: not running")
        network.say("ann", "hello")
        await wait_for_text(network, "ann", "re: hello")


async def test_stop_works_while_the_store_does_not_respond(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    called = asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "think":
            called.set()
            return Say("slow " * 200, pause=0.1)
        return Say(f"re: {received.question}")

    server.answering(answer)
    async with (
        run_gateway(tmp_path, network.platform(), server.url, settings=OWNED) as gateway,
        BlockedStore(gateway) as hold,
    ):
        network.say("ann", "think")
        await called.wait()
        await hold.begin()
        network.say("ann", "/stop")
        await wait_for_text(network, "ann", "Stopping.")
        hold.end()
        await network.until(lambda: "Stopped." in network.shown("ann"))
        await hold.begin()
        network.say("ann", "and now?")
        await network.until(lambda: any("can't reach my database" in text for text in network.shown("ann")))
        hold.end()
        await network.until(lambda: "re: and now?" in network.shown("ann"))


class BlockedStore:
    """A store whose writer is busy from `begin` to `end`."""

    def __init__(self, gateway: InProcessGateway) -> None:
        self._gateway = gateway
        self._free = threading.Event()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._free.set()
        await self._group.__aexit__(None, None, None)

    async def begin(self) -> None:
        self._free = free = threading.Event()
        busy = threading.Event()

        def work(_tx: Transaction) -> None:
            busy.set()
            free.wait(60)

        self._group.create_task(self._gateway.application.store.write(work))
        await asyncio.to_thread(busy.wait, 10)

    def end(self) -> None:
        self._free.set()
