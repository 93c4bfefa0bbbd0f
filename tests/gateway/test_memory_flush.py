"""Memory flush before an automatic reset."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.gateway.in_process_gateway import InProcessGateway, run_gateway

from talaria.contracts.platform import Incoming, PlatformCapabilities, Sender
from talaria.core.addresses import Address
from talaria.core.aio import SupervisedTaskGroup
from talaria.gateway.session_reset import MemoryFlusher
from talaria.sessions.keys import build_session_key
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received

HOURLY = 'owners = ["loopback:ann"]\n[platforms.loopback]\nreset = "idle"\nreset_idle_minutes = 60\n'
FACT = "Ann's ship is called Nanny."


def answer(received: Received) -> Say:
    if "This conversation is over" in received.question:
        last = received.json["messages"][-1]
        return Say("ok") if last["role"] == "tool" else Say(calls=[Ask("memory", {"action": "add", "text": FACT})])
    return Say(f"re: {received.question}")


async def flush_due_sessions(gateway: InProcessGateway, home: Path, now: datetime) -> int:
    application = gateway.application
    async with SupervisedTaskGroup() as jobs:
        flusher = MemoryFlusher(
            application,
            gateway.chats.worker,
            home,
            lambda: application.settings.platforms,
            lambda: application.zone,
            jobs,
        )
        return await flusher.look(now)


async def until_settled(gateway: InProcessGateway) -> None:
    """Wait until Ann's turn has ended: a streamed reply is shown before that."""
    room = gateway.chats.find(build_session_key(Address("loopback", "ann")))
    assert room is not None
    await room.active_session.chat.conversation.wait_until_idle()


async def test_memory_is_flushed_once_and_known_to_the_next_session(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=HOURLY) as gateway,
    ):
        server.answering(answer)
        network.say("ann", "My ship is called Nanny.")
        await network.posted(1)
        await until_settled(gateway)
        now = datetime.now(UTC)
        assert await flush_due_sessions(gateway, tmp_path, now) == 0
        assert await flush_due_sessions(gateway, tmp_path, now + timedelta(hours=2)) == 1
        assert await flush_due_sessions(gateway, tmp_path, now + timedelta(hours=3)) == 0
        assert len(network.posts) == 1  # the flush posts no message
        update = Incoming(
            external_id="next",
            address=Address("loopback", "ann"),
            sender=Sender("ann", "ann"),
            at=now + timedelta(minutes=1),
            text="what is it called?",
        )
        await gateway.dispatcher.receive(update)
        await network.until(lambda: "re: what is it called?" in network.shown("ann"))
        assert any("this is a new conversation" in text for text in network.shown("ann"))
        system, *messages = server.received[-1].json["messages"]
        assert FACT in system["content"]
        assert [message["content"] for message in messages] == ["what is it called?"]


async def test_network_without_a_reset_policy_has_no_memory_flush(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network,
        run_gateway(tmp_path, network.platform(), server.url) as gateway,
    ):
        server.answering(answer)
        network.say("ann", "hello")
        await network.posted(1)
        await until_settled(gateway)
        assert await flush_due_sessions(gateway, tmp_path, datetime.now(UTC) + timedelta(days=400)) == 0
        assert len(server.received) == 1


async def test_resumed_session_continues_and_is_flushed_again_after_another_pause(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        LoopbackNetwork(PlatformCapabilities(text_limit=4096, idempotent=True)) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=HOURLY) as gateway,
    ):
        server.answering(answer)
        network.say("ann", "My ship is called Nanny.")
        await network.posted(1)
        await until_settled(gateway)
        room = gateway.chats.find(build_session_key(Address("loopback", "ann")))
        assert room is not None
        old = room.active_session.session_id
        later = datetime.now(UTC) + timedelta(hours=2)
        assert await flush_due_sessions(gateway, tmp_path, later) == 1
        network.say("ann", "hello")
        await network.until(lambda: "re: hello" in network.shown("ann"))
        await until_settled(gateway)
        network.say("ann", f"/resume {old}")
        await network.until(lambda: any("Back in" in text for text in network.shown("ann")))
        assert "re: My ship is called Nanny." in network.shown("ann")[-1]  # not the memory flush
        network.say("ann", "go on")
        await network.until(lambda: "re: go on" in network.shown("ann"))
        await until_settled(gateway)
        texts = [message["content"] for message in server.received[-1].json["messages"]]
        assert "My ship is called Nanny." in texts
        assert await flush_due_sessions(gateway, tmp_path, later) == 1  # another pause, another memory flush
