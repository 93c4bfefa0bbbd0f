"""Completions of background work become one message for their session, once; on every engine."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands.command_fixture import open_chat_client
from tests.contracts.sample_messages import text_message
from tests.open_requests import change_request
from tests.runtime.scripted_runner import run_pending_turns

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import InboxItem
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import TurnLog
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import OWNER, PROGRAM, Message, Text
from talaria.core.session_context import SessionContext
from talaria.runtime.active_session import deliver_completions
from talaria.runtime.completions import (
    CompletionListener,
    queue_pending_reports,
    queue_reports,
    queue_reports_if_idle,
    read_origin,
    report,
)
from talaria.runtime.live.remote import send_to_session
from talaria.runtime.turns import add_to_inbox, read_inbox_message
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import until

ROOM = Address("loopback", "7", "group", "t1")
ORIGIN = read_origin(SessionContext(platform="loopback", chat_id="7", thread_id="t1", message_id="m5", user_id="ann"))


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


async def pending(store: Store, session_id: SessionId) -> list[InboxItem]:
    return await store.read(lambda tx: tx.inbox.list_unsettled(session_id))


async def add_report(store: Store, session_id: SessionId, number: str, text: str) -> bool:
    return await store.write(lambda tx: report(tx, session_id, "process", number, text))


async def test_several_completions_become_one_message_in_order(store: Store, session_id: SessionId) -> None:
    for number in ("one", "two"):
        assert await add_report(store, session_id, number, f"{number} ended")
    assert not await store.write(lambda tx: report(tx, session_id, "process", "one", "one ended again"))
    assert await store.write(lambda tx: queue_reports(tx, session_id))
    (item,) = await pending(store, session_id)
    message = read_inbox_message(item.payload)
    assert message.author == PROGRAM
    assert message.text.index("one ended") < message.text.index("two ended")
    assert "again" not in message.text


async def test_long_completions_are_cut_and_none_is_omitted(store: Store, session_id: SessionId) -> None:
    for number in range(20):
        await add_report(store, session_id, str(number), f"number {number}: " + "x" * 10_000)
    await store.write(lambda tx: queue_reports(tx, session_id))
    (item,) = await pending(store, session_id)
    text = read_inbox_message(item.payload).text
    assert len(text) < 70_000
    assert all(f"number {number}: x" in text for number in range(20))


async def test_a_delivered_completion_is_not_reported_again(store: Store, session_id: SessionId) -> None:
    await store.write(lambda tx: report(tx, session_id, "process", "1", "it ended"))
    assert await queue_pending_reports(store, session_id)
    assert not await queue_pending_reports(store, session_id)
    assert not await store.write(lambda tx: report(tx, session_id, "process", "1", "it ended"))
    assert not await store.write(lambda tx: queue_reports(tx, session_id))


async def test_concurrent_reports_queue_a_completion_once(store: Store, session_id: SessionId) -> None:
    await store.write(lambda tx: report(tx, session_id, "process", "1", "it ended"))
    queued = await asyncio.gather(*(queue_pending_reports(store, session_id) for _ in range(8)))
    assert queued.count(True) == 1
    assert len(await pending(store, session_id)) == 1


async def test_a_deleted_session_gets_no_report(store: Store) -> None:
    gone = SessionId("gone")
    assert not await store.write(lambda tx: report(tx, gone, "process", "1", "it ended"))
    assert not await store.write(lambda tx: queue_reports(tx, gone))


async def test_report_is_routed_to_the_thread_and_message_that_requested_the_work(
    store: Store, session_id: SessionId
) -> None:
    await store.write(lambda tx: tx.bindings.bind("key", session_id, ROOM))
    await store.write(lambda tx: report(tx, session_id, "process", "1", "it ended", origin=ORIGIN))
    await store.write(lambda tx: queue_reports(tx, session_id))
    (item,) = await pending(store, session_id)
    assert read_inbox_message(item.payload).route == ReplyRoute(ROOM, reply_to="m5", user_id="ann")


async def test_a_moved_session_gets_reports_at_its_new_address(store: Store, session_id: SessionId) -> None:
    elsewhere = Address("loopback", "9")
    await store.write(lambda tx: report(tx, session_id, "process", "1", "it ended", origin=ORIGIN))
    await store.write(lambda tx: tx.bindings.bind("elsewhere", session_id, elsewhere))
    await store.write(lambda tx: queue_reports(tx, session_id))
    (item,) = await pending(store, session_id)
    assert read_inbox_message(item.payload).route == ReplyRoute(elsewhere)


async def test_completions_during_a_turn_are_reported_in_one_turn_after_it(store: Store, session_id: SessionId) -> None:
    questions = []

    async def agree(turn: TurnLog) -> TurnEnd:
        questions.append((await turn.read_transcript())[-1].message.text)
        if len(questions) == 1:
            for number in ("one", "two"):
                await add_report(store, session_id, number, number)
                assert not await queue_pending_reports(store, session_id)
        await turn.finish(TurnAnswered("ok"), text_message("ok", role="assistant"))
        return TurnAnswered("ok")

    await add_to_inbox(store, session_id, "test", "1", text_message("start it"))
    await run_pending_turns(store, session_id, agree, ended=CompletionListener().turn_ended)
    assert len(questions) == 2
    assert questions[1].endswith("one\n\n---\n\ntwo")


async def test_a_claimed_report_is_delivered_before_the_next_is_queued(store: Store, session_id: SessionId) -> None:
    def report_and_look(tx: Transaction, number: str) -> list[InboxItem]:
        report(tx, session_id, "process", number, number)
        return queue_reports_if_idle(tx, session_id)

    assert await store.write(lambda tx: report_and_look(tx, "one"))
    assert not await store.write(lambda tx: report_and_look(tx, "two"))
    assert not await store.write(lambda tx: report_and_look(tx, "three"))
    asked: list[str] = []

    async def agree(turn: TurnLog) -> TurnEnd:
        asked.append((await turn.read_transcript())[-1].message.text)
        await turn.finish(TurnAnswered("ok"), text_message("ok", role="assistant"))
        return TurnAnswered("ok")

    await run_pending_turns(store, session_id, agree, ended=CompletionListener().turn_ended)
    assert [text.partition("\n\n")[2] for text in asked] == ["one", "two\n\n---\n\nthree"]


async def test_completion_is_reported_only_under_the_session_key_it_is_bound_to(
    store: Store, session_id: SessionId
) -> None:
    await store.write(lambda tx: tx.bindings.bind("key", session_id, ROOM))
    await store.write(lambda tx: report(tx, session_id, "process", "1", "it ended"))
    assert not await queue_pending_reports(store, session_id)
    assert not await queue_pending_reports(store, session_id, "another")
    assert await queue_pending_reports(store, session_id, "key")


def answer(received: Received) -> Say:
    return Say(f"heard: {received.question.rpartition(chr(10))[2]}")


async def test_pending_completions_are_reported_when_a_session_is_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.answering(answer)
        here = client.active_session.session_id
        client.active_session.request = change_request(client.active_session.request, lasting=True)
        await client.application.store.write(lambda tx: report(tx, here, "process", "1", "it ended"))
        await client.active_session.renew()
        await client.active_session.chat.conversation.wait_until_idle()
        assert [text for role, text in await client.transcript() if role == "assistant"] == ["heard: it ended"]


async def test_message_from_another_process_starts_a_turn_in_an_idle_open_terminal(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.answering(answer)
        here, store = client.active_session.session_id, client.application.store
        client.active_session.start_background_task(deliver_completions(client.active_session))
        message = Message(role="user", parts=(Text("too late to steer"),), at=datetime.now(UTC))
        assert not await send_to_session(store, here, message, source="web", sender=OWNER, steering=True)
        await until(lambda: store.read(lambda tx: len(tx.messages.load(here)) >= 2))
        assert (await client.transcript())[-1] == ("assistant", "heard: too late to steer")


async def test_completion_starts_a_turn_in_an_idle_open_terminal(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.answering(answer)
        here, store = client.active_session.session_id, client.application.store
        client.active_session.start_background_task(deliver_completions(client.active_session))
        await store.write(lambda tx: report(tx, here, "process", "1", "it ended"))
        await until(lambda: store.read(lambda tx: len(tx.messages.load(here)) >= 2))
        assert (await client.transcript())[-1] == ("assistant", "heard: it ended")
