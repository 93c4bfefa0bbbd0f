"""What arrives is kept and acted upon, and one chat never holds up another."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.gateway.in_process_gateway import SmallGateway, served
from tests.tools.process.process_fixture import elsewhere

from talaria.contracts.background_processes import add_process, list_processes
from talaria.contracts.platform import Incoming, PlatformCapabilities, Sender
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import new_worker_id
from talaria.runtime.workers import CHAT_WORKER, WorkerStatus, claim_chat, write_worker
from talaria.sessions.keys import build_session_key
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say

NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True)


async def test_a_conversation_that_cannot_be_opened_keeps_no_other_chat_waiting(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with served(tmp_path, network.platform(), server.url) as gateway:
            network.say("ann", "first")
            await network.posted(1)
            await spoil(gateway, "ann")
            network.say("ann", "second")
            network.say("bob", "hello", sender="bob")
            await network.until(lambda: network.shown("bob") == ["re: hello"])
            assert network.receivers == 1
            await network.posted(3)
    first, told = network.shown("ann")
    assert (first, told.partition(":")[0]) == ("re: first", "I can't answer your message yet")


async def test_a_button_that_nobody_waits_for_is_no_message(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with served(tmp_path, network.platform(), server.url):
            network.press("ann", "1", "long-ago:0")
            network.say("ann", "hello")
            await network.posted(1)
    assert network.shown("ann") == ["re: hello"]


async def spoil(gateway: SmallGateway, chat: str) -> None:
    """Let the room of a chat go, and have its conversation wish for a provider that there is none."""
    key = build_session_key(Address("loopback", chat))
    room = gateway.chats.find(key)
    assert room is not None
    session_id = room.active_session.session_id
    gateway.chats.release(key)
    choice = Preferences(model="nobody:nothing")
    await gateway.application.store.write(lambda tx: write_preferences(tx, session_id, choice))


async def test_what_is_said_right_after_a_command_comes_after_it(tmp_path: Path) -> None:
    chats = [f"chat-{number}" for number in range(20)]
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with served(tmp_path, network.platform(), server.url):
            for chat in chats:
                network.say(chat, "first", sender=chat)
            await network.until(lambda: all("re: first" in network.shown(chat) for chat in chats))
            for chat in chats:
                for text in ("/new", "/title Harbour", "second"):
                    network.say(chat, text, sender=chat)
            await network.until(lambda: all("re: second" in network.shown(chat) for chat in chats))
    asked = [call.json["messages"] for call in server.received if call.question == "second"]
    assert [len(messages) for messages in asked] == [2] * len(chats)
    assert all("title is now *Harbour*" in network.shown(chat)[2] for chat in chats)


async def test_a_conversation_that_starts_again_in_a_room_of_another_worker_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    hourly = '[platforms.loopback]\nreset = "idle"\nreset_idle_minutes = 60\n'
    async with (
        ModelServer() as server,
        LoopbackNetwork(NETWORK) as network,
        served(tmp_path, network.platform(), server.url, settings=hourly) as gateway,
    ):
        network.say("ann", "first")
        await network.posted(1)
        key, store = build_session_key(Address("loopback", "ann")), gateway.application.store
        room = gateway.chats.find(key)
        assert room is not None
        left, now = room.active_session.session_id, datetime.now(UTC)
        other = WorkerStatus(
            worker=new_worker_id(), pid=os.getpid(), host="here", started=now, at=now, version="1", lease=3600
        )

        def kept_elsewhere(tx: Transaction) -> bool:
            add_process(tx, elsewhere(left))
            write_worker(tx, other)
            CHAT_WORKER.delete(tx, key)
            return claim_chat(tx, key, other.worker)

        assert await store.write(kept_elsewhere)
        late = Incoming(
            external_id="late",
            address=Address("loopback", "ann"),
            sender=Sender("ann", "ann"),
            at=now + timedelta(hours=2),
            text="and now?",
        )
        await gateway.dispatcher.receive(late)
        (process,) = await store.read(list_processes)
        assert process.ended_by == "conversation"
