"""A turn whose conversation moves while it runs: one reply, at the new place, and nothing more is begun."""

import asyncio

import pytest
from tests.contracts.sample_messages import said
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
    end = TurnAnswered(f"yes, {(await turn.transcript())[-1].message.text}")
    await turn.finish(end, Message(role="assistant", parts=(Text(end.text),), at=NOON))
    return end


def replies(tx: Transaction, session_id: SessionId) -> list[tuple[Address, str]]:
    return [(one.address, one.payload) for one in tx.outbox.find(OutboxFilter(session_id=session_id))]


async def test_the_reply_goes_to_the_new_place_once(store: Store, session_id: SessionId) -> None:
    async def moved(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, HERE))
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        return await agree(turn)

    came = make_arrival(session_id, "test", "1", said("one"), route=HERE)
    await store.write(lambda tx: tx.inbox.add(came))
    await run_pending_turns(store, session_id, moved)
    ((address, payload),) = await store.read(lambda tx: replies(tx, session_id))
    assert address == THERE.address
    assert "yes, one" in payload


async def test_pending_messages_after_a_rebind_are_left_to_the_new_address(store: Store, session_id: SessionId) -> None:
    async def moved(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        await add_to_inbox(store, session_id, "test", "2", said("two"))
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", said("one"))
    assert await run_pending_turns(store, session_id, moved) == TurnAnswered("yes, one")
    assert await run_pending_turns(store, session_id, agree) == TurnAnswered("yes, two")


async def test_without_an_address_no_notice_is_posted(store: Store, session_id: SessionId) -> None:
    async def moved(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, None))
        return await agree(turn)

    came = make_arrival(session_id, "test", "1", said("one"), route=HERE)
    await store.write(lambda tx: tx.inbox.add(came))
    await run_pending_turns(store, session_id, moved)
    assert await store.read(lambda tx: replies(tx, session_id)) == []


async def test_the_next_worker_answers_at_the_new_address_then_the_pending_messages(
    store: Store, session_id: SessionId
) -> None:
    async def dies(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        raise asyncio.CancelledError

    routes: list[ReplyRoute | None] = []

    async def goes_on(turn: TurnRecorder) -> TurnEnd:
        routes.append(turn.work.route)
        return await agree(turn)

    came = make_arrival(session_id, "test", "1", said("one"), route=HERE)
    await store.write(lambda tx: tx.inbox.add(came))
    assert await run_pending_turns(store, session_id, dies) is None
    await add_to_inbox(store, session_id, "test", "2", said("two"))
    assert await run_pending_turns(store, session_id, goes_on) == TurnAnswered("yes, two")
    assert routes == [THERE, None]
    assert [address for address, _ in await store.read(lambda tx: replies(tx, session_id))] == [THERE.address]


async def test_where_nothing_is_running_there_is_nothing_to_move(store: Store, session_id: SessionId) -> None:
    assert await store.write(lambda tx: redirect_reply(tx, session_id, THERE)) is None
    await add_to_inbox(store, session_id, "test", "1", said("one"))

    async def looks(turn: TurnRecorder) -> TurnEnd:
        assert await store.read(lambda tx: find_redirect(tx, session_id, turn.work.turn_id)) is None
        return await agree(turn)

    assert await run_pending_turns(store, session_id, looks) == TurnAnswered("yes, one")


async def test_a_runner_that_was_stopped_after_the_move_knows_that_its_session_is_gone(
    store: Store, session_id: SessionId
) -> None:
    async def moved(turn: TurnRecorder) -> TurnEnd:
        await store.write(lambda tx: redirect_reply(tx, session_id, THERE))
        end = await agree(turn)
        runner.stop()
        return end

    await add_to_inbox(store, session_id, "test", "1", said("one"))
    async with open_runner(store, session_id, moved, RunnerOptions(titled=False)) as runner:
        assert await runner.run_pending_turns() == TurnAnswered("yes, one")
        assert runner.state is RunnerState.MOVED
        with pytest.raises(Refused, match="moved"):
            await runner.run_pending_turns()
