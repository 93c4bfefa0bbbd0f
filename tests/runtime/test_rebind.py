"""A session that moves during a turn: one reply at the new address, and the runner starts no further turn."""

import asyncio

import pytest
from tests.contracts.sample_messages import text_message
from tests.runtime.scripted_runner import open_runner, run_pending_turns

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxFilter
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import Refused
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.runtime.runner import RunnerOptions, RunnerState
from talaria.runtime.turn_log import TurnRecorder
from talaria.runtime.turns import add_to_inbox, find_redirect, make_arrival, redirect_reply
from talaria.testing.clock import NOON

HERE, THERE = ReplyRoute(Address("somewhere", "here")), ReplyRoute(Address("elsewhere", "there"), user_id="ann")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


async def agree(turn: TurnRecorder) -> TurnEnd:
    end = TurnAnswered(f"yes, {(await turn.read_transcript())[-1].message.text}")
    await turn.finish(end, Message(role="assistant", parts=(Text(end.text),), at=NOON))
    return end


def replies(tx: Transaction, session_id: SessionId) -> list[tuple[Address, str]]:
    return [(one.address, one.payload) for one in tx.outbox.find(OutboxFilter(session_id=session_id))]


async def test_reply_of_a_moved_session_is_sent_once_to_the_new_address(store: Store, session_id: SessionId) -> None:
    async def move_and_agree(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, HERE))
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        return await agree(turn)

    arrival = make_arrival(session_id, "test", "1", text_message("one"), route=HERE)
    await store.write(lambda tx: tx.inbox.add(arrival))
    await run_pending_turns(store, session_id, move_and_agree)
    ((address, payload),) = await store.read(lambda tx: replies(tx, session_id))
    assert address == THERE.address
    assert "yes, one" in payload


async def test_pending_messages_after_a_rebind_are_left_to_the_new_address(store: Store, session_id: SessionId) -> None:
    async def move_and_agree(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        await add_to_inbox(store, session_id, "test", "2", text_message("two"))
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    assert await run_pending_turns(store, session_id, move_and_agree) == TurnAnswered("yes, one")
    assert await run_pending_turns(store, session_id, agree) == TurnAnswered("yes, two")


async def test_reply_redirected_to_no_address_is_not_queued(store: Store, session_id: SessionId) -> None:
    async def move_and_agree(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, None))
        return await agree(turn)

    arrival = make_arrival(session_id, "test", "1", text_message("one"), route=HERE)
    await store.write(lambda tx: tx.inbox.add(arrival))
    await run_pending_turns(store, session_id, move_and_agree)
    assert await store.read(lambda tx: replies(tx, session_id)) == []


async def test_next_worker_replies_at_the_new_address_then_answers_pending_messages(
    store: Store, session_id: SessionId
) -> None:
    async def move_and_cancel(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        raise asyncio.CancelledError

    routes: list[ReplyRoute | None] = []

    async def resume(turn: TurnRecorder) -> TurnEnd:
        routes.append(turn.work.route)
        return await agree(turn)

    arrival = make_arrival(session_id, "test", "1", text_message("one"), route=HERE)
    await store.write(lambda tx: tx.inbox.add(arrival))
    assert await run_pending_turns(store, session_id, move_and_cancel) is None
    await add_to_inbox(store, session_id, "test", "2", text_message("two"))
    assert await run_pending_turns(store, session_id, resume) == TurnAnswered("yes, two")
    assert routes == [THERE, None]
    assert [address for address, _ in await store.read(lambda tx: replies(tx, session_id))] == [THERE.address]


async def test_session_without_a_running_turn_has_no_reply_to_redirect(store: Store, session_id: SessionId) -> None:
    assert await store.write(lambda tx: redirect_reply(tx, session_id, THERE)) is None
    await add_to_inbox(store, session_id, "test", "1", text_message("one"))

    async def check_no_redirect(turn: TurnRecorder) -> TurnEnd:
        assert await store.read(lambda tx: find_redirect(tx, session_id, turn.work.turn_id)) is None
        return await agree(turn)

    assert await run_pending_turns(store, session_id, check_no_redirect) == TurnAnswered("yes, one")


async def test_runner_stopped_after_a_move_refuses_further_turns(store: Store, session_id: SessionId) -> None:
    async def move_and_agree(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        end = await agree(turn)
        runner.stop()
        return end

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    async with open_runner(store, session_id, move_and_agree, RunnerOptions(titled=False)) as runner:
        assert await runner.run_pending_turns() == TurnAnswered("yes, one")
        assert runner.state is RunnerState.MOVED
        with pytest.raises(Refused, match="moved"):
            await runner.run_pending_turns()
