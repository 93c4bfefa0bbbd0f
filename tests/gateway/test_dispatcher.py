"""Dispatch of incoming messages: stored and processed in order, and no chat delays another."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.gateway.in_process_gateway import InProcessGateway, run_gateway
from tests.tools.process.process_fixture import process_on_another_machine

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


async def test_session_that_cannot_be_opened_delays_no_other_chat(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with run_gateway(tmp_path, network.platform(), server.url) as gateway:
            network.say("ann", "first")
            await network.posted(1)
            await break_session(gateway, "ann")
            network.say("ann", "second")
            network.say("bob", "hello", sender="bob")
            await network.until(lambda: network.shown("bob") == ["re: hello"])
            assert network.receivers == 1
            await network.posted(3)
    first, notice = network.shown("ann")
    assert (first, notice.partition(":")[0]) == ("re: first", "I can't answer your message yet")


async def test_press_of_an_outdated_button_starts_no_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with run_gateway(tmp_path, network.platform(), server.url):
            network.press("ann", "1", "long-ago:0")
            network.say("ann", "hello")
            await network.posted(1)
    assert network.shown("ann") == ["re: hello"]


async def break_session(gateway: InProcessGateway, chat: str) -> None:
    """Evict a chat and set the model of its session to a provider that does not exist."""
    key = build_session_key(Address("loopback", chat))
    opened = gateway.chats.find(key)
    assert opened is not None
    session_id = opened.active_session.session_id
    gateway.chats.release(key)
    choice = Preferences(model="nobody:nothing")
    await gateway.application.store.write(lambda tx: write_preferences(tx, session_id, choice))


async def test_message_right_after_a_command_is_processed_after_it(tmp_path: Path) -> None:
    chats = [f"chat-{number}" for number in range(20)]
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with run_gateway(tmp_path, network.platform(), server.url):
            for chat in chats:
                network.say(chat, "first", sender=chat)
            await network.until(lambda: all("re: first" in network.shown(chat) for chat in chats))
            for chat in chats:
                for text in ("/new", "/title Harbour", "second"):
                    network.say(chat, text, sender=chat)
            await network.until(lambda: all(len(network.shown(chat)) == 4 for chat in chats))
    sent = [call.json["messages"] for call in server.received if call.question == "second"]
    assert [len(messages) for messages in sent] == [2] * len(chats)
    for chat in chats:
        assert "title is now *Harbour*" in network.shown(chat)[2]
        assert network.shown(chat)[3] == "re: second"


async def test_reset_of_a_chat_owned_by_another_worker_ends_its_processes(
    tmp_path: Path,
) -> None:
    hourly = '[platforms.loopback]\nreset = "idle"\nreset_idle_minutes = 60\n'
    async with (
        ModelServer() as server,
        LoopbackNetwork(NETWORK) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=hourly) as gateway,
    ):
        network.say("ann", "first")
        await network.posted(1)
        key, store = build_session_key(Address("loopback", "ann")), gateway.application.store
        opened = gateway.chats.find(key)
        assert opened is not None
        left, now = opened.active_session.session_id, datetime.now(UTC)
        other = WorkerStatus(
            worker=new_worker_id(), pid=os.getpid(), host="here", started=now, at=now, version="1", lease=3600
        )

        def claim_for_other_worker(tx: Transaction) -> bool:
            add_process(tx, process_on_another_machine(left))
            write_worker(tx, other)
            CHAT_WORKER.delete(tx, key)
            return claim_chat(tx, key, other.worker)

        assert await store.write(claim_for_other_worker)
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
