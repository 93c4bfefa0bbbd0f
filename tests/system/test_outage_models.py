"""A model that is down for long: people get a notice, other chats are unaffected, and work resumes when it is back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.system.outage_fixture import SECRET, OutageFixture

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Fail, Fault, Received, overloaded
from talaria.testing.system_servers import free_port

UNREACHABLE = "I can't reach the model provider. Try again later. `/retry` sends your last message again."
TROUBLE = "The model provider is having problems. Try again later. `/retry` sends your last message again."
BUSY = "The model is busy. Try again in a while. `/retry` sends your last message again."


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


def other_provider(server: ModelServer) -> str:
    return f'[providers.other]\nbase_url = "{server.url}/v1"\n'


async def test_unreachable_provider_is_reported_and_called_again(tmp_path: Path, network: LoopbackNetwork) -> None:
    port = free_port()
    outage = OutageFixture(tmp_path, ModelServer(port=port), network)
    outage.write_settings()
    async with outage.running():
        network.say("ann", "one")
        network.say("ann", "two")
        await outage.shown("ann", UNREACHABLE, UNREACHABLE)
        status = await outage.until_status(lambda status: bool(status["models"]))
        (model,) = status["models"]
        assert model["name"] == "mine:scripted"
        assert model["failures"] >= 6
        assert "The model mine:scripted isn't answering" in (await outage.run("gateway", "status")).out
        metrics = (await outage.get(status["address"], "/metrics"))[1]
        assert 'talaria_model_up{model="mine:scripted"} 0\n' in metrics
        assert (await outage.get(status["address"], "/ready"))[0] == 200
        async with ModelServer(port=port) as back:
            back.answering(lambda received: Say(f"re: {received.question}"))
            network.say("ann", "/retry")
            await outage.wait_for_text("ann", "re: two")
            network.say("ann", "three")
            await outage.wait_for_text("ann", "re: three")
            await outage.until_status(lambda status: not status["models"])
    outage.check_log()


@pytest.mark.parametrize(
    ("fault", "notice"),
    [
        (Fail(500, message=f"the key {SECRET} is fine, but we are not"), TROUBLE),
        (overloaded(), TROUBLE),
        (Fail(429, retry_after=3600), BUSY),
    ],
    ids=["broken", "overloaded", "busy-for-long"],
)
async def test_failing_provider_affects_only_its_own_chats(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, fault: Fault, notice: str
) -> None:
    async with ModelServer() as fine:
        fine.answering(lambda received: Say(f"re: {received.question}"))
        outage = OutageFixture(tmp_path, server, network)
        outage.write_settings(more=other_provider(fine))
        server.otherwise(fault)
        async with outage.running():
            network.say("den", "/model other:test-model")
            await network.until(lambda: any("test-model" in text for text in network.shown("den")))
            for text in ("one", "two"):
                network.say("ann", text)
            network.say("den", "hello")
            await outage.wait_for_text("den", "re: hello")
            await outage.shown("ann", notice, notice)
            status = await outage.until_status(lambda status: bool(status["models"]))
            assert [model["name"] for model in status["models"]] == ["mine:scripted"]
            server.answering(lambda received: Say(f"re: {received.question}"))
            network.say("ann", "three")
            await outage.shown("ann", notice, notice, "re: three")
            status = await outage.until_status(lambda status: not status["models"])
            metrics = (await outage.get(status["address"], "/metrics"))[1]
            assert 'talaria_model_up{model="mine:scripted"} 1\n' in metrics
    outage.check_log()


async def test_short_retry_after_of_a_provider_is_waited_out_within_the_turn(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    outage = OutageFixture(tmp_path, server, network)
    outage.write_settings()
    server.script(Fail(429, retry_after=1), overloaded())
    async with outage.running():
        network.say("ann", "one")
        network.say("ann", "two")
        await network.until(lambda: "re: two" in network.shown("ann"))
        assert [text for text in network.shown("ann") if text.startswith("re: ")] == ["re: one", "re: two"]
    outage.check_log()


async def test_turn_after_a_fallback_calls_the_first_model_again(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    def fall_back(received: Received) -> Say:
        return Say(f"second: {received.question}")

    async with ModelServer() as second:
        second.answering(fall_back)
        outage = OutageFixture(tmp_path, server, network)
        outage.write_settings(model='fallbacks = ["other:test-model"]\n', more=other_provider(second))
        server.otherwise(Fail(500))
        async with outage.running():
            network.say("ann", "one")
            await network.until(lambda: any("second: one" in text for text in network.shown("ann")))
            network.say("bob", "hello", sender="bob")
            await network.until(lambda: any("second: hello" in text for text in network.shown("bob")))
            before = len(second.received)
            server.answering(lambda received: Say(f"re: {received.question}"))
            network.say("ann", "two")
            await outage.wait_for_text("ann", "re: two")
            assert "two" not in [call.question for call in second.received[before:]]
    outage.check_log()
