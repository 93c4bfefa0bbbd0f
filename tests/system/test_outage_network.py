"""A chat network that is unreachable for a while: replies wait, and are then posted in order and once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.system.outage_fixture import OutageFixture

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.adapter import CHATTY
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received

NAMES = [f"m{number}" for number in range(6)]


@pytest.mark.parametrize(
    "abilities", [CHATTY, PlatformCapabilities(text_limit=4096, exclusive=True)], ids=["chatty", "one-receiver"]
)
async def test_replies_wait_for_an_unreachable_network(
    tmp_path: Path, server: ModelServer, abilities: PlatformCapabilities
) -> None:
    network = LoopbackNetwork(abilities)
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == NAMES[1]:
            asked.set()
            await go.wait()
        return Say(f"re: {received.question}")

    outage = OutageFixture(tmp_path, server, network)
    async with AsyncExitStack() as stack:
        async with network:
            outage.write_settings()
            server.answering(answer)
            await stack.enter_async_context(outage.running())
            for name in NAMES:
                network.say("ann", name)
            await asked.wait()
            await network.until(lambda: not network.unconfirmed)
        go.set()
        status = await outage.until_status(lambda status: status["networks"][0]["state"] == "waiting")
        assert status["networks"][0]["error"]
        await outage.until_status(lambda status: status["undelivered"] >= len(NAMES) - 1 and not status["turns"])
        assert (await outage.get(status["address"], "/health"))[0] == 200
        assert (await outage.get(status["address"], "/ready"))[0] == 503
        async with network:
            await outage.shown("ann", *(f"re: {name}" for name in NAMES), seconds=90)
            await outage.until_status(lambda status: status["networks"][0]["state"] == "connected")
            network.say("ann", "and now?")
            await outage.wait_for_text("ann", "re: and now?")
            await stack.aclose()
    posted = [post.text for post in network.posts]
    assert sorted(posted) == sorted(set(posted))
    late = [line for line in outage.log() if line["logger"] == "talaria.gateway.outbound.delivery"]
    assert late
    assert all(line["session"] and line["platform"] == "loopback" for line in late)
    outage.check_log()


async def test_replies_that_the_network_refused_are_sent_in_order_later(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork() as network:
        outage = OutageFixture(tmp_path, server, network)
        outage.write_settings()
        network.disrupt(Fault("post", "unreachable", times=0))
        async with outage.running():
            for name in NAMES:
                network.say("ann", name)
            status = await outage.until_status(lambda status: status["undelivered"] == len(NAMES))
            assert status["networks"][0]["state"] == "connected"
            network.disrupt()
            await outage.shown("ann", *(f"re: {name}" for name in NAMES))
    outage.check_log()
