"""Leases of sessions: one worker runs a session at a time, and each message gets one turn; on every engine."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from tests.contracts.sample_messages import text_message
from tests.contracts.session_leases import claim_session_lease
from tests.runtime.scripted_runner import run_pending_turns
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import TurnLog
from talaria.core.errors import LeaseLost, Refused, StoreBusy
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.runtime.turns import add_to_inbox
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.wait import until

LEASE = timedelta(seconds=15)
SHORT = timedelta(milliseconds=30)


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


def answer(text: str) -> Message:
    return Message(role="assistant", parts=(Text(text),), at=NOON)


async def agree(turn: TurnLog) -> TurnEnd:
    """Answer the last message."""
    end = TurnAnswered(f"yes, {(await turn.read_transcript())[-1].message.text}")
    await turn.finish(end, answer(end.text))
    return end


async def texts(store: Store, session_id: SessionId) -> list[str]:
    stored = await store.read(lambda tx: tx.messages.load(session_id))
    return [one.message.text for one in stored]


async def test_each_message_gets_its_own_turn_oldest_first(store: Store, session_id: SessionId) -> None:
    for text in ("one", "two"):
        assert await add_to_inbox(store, session_id, "test", text, text_message(text))
    assert await run_pending_turns(store, session_id, agree) == TurnAnswered("yes, two")
    assert await texts(store, session_id) == ["one", "yes, one", "two", "yes, two"]


async def test_redelivered_message_gets_no_second_turn(store: Store, session_id: SessionId) -> None:
    assert await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert not await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    await run_pending_turns(store, session_id, agree)
    assert not await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert await run_pending_turns(store, session_id, agree) is None
    assert await texts(store, session_id) == ["hello", "yes, hello"]


async def test_the_same_id_from_another_source_is_another_message(store: Store, session_id: SessionId) -> None:
    assert await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert await add_to_inbox(store, session_id, "other", "1", text_message("hello"))


async def test_session_without_pending_messages_runs_no_turn(store: Store, session_id: SessionId) -> None:
    assert await run_pending_turns(store, session_id, agree) is None


async def test_messages_during_a_turn_are_processed_after_it(store: Store, session_id: SessionId) -> None:
    async def answer_slowly(turn: TurnLog) -> TurnEnd:
        await add_to_inbox(store, session_id, "test", "2", text_message("and two"))
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    assert await run_pending_turns(store, session_id, answer_slowly) == TurnAnswered("yes, and two")


async def test_leased_session_is_refused_to_others_until_its_turn_ends(store: Store, session_id: SessionId) -> None:
    async def interfere(turn: TurnLog) -> TurnEnd:
        with pytest.raises(Refused):
            await run_pending_turns(store, session_id, agree)
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    assert await run_pending_turns(store, session_id, interfere) == TurnAnswered("yes, one")
    await add_to_inbox(store, session_id, "test", "2", text_message("two"))
    assert await run_pending_turns(store, session_id, agree) == TurnAnswered("yes, two")


async def test_two_workers_never_run_one_session_at_the_same_time(
    store_location: StoreLocation, clock: SettableClock, store: Store, session_id: SessionId
) -> None:
    other = store_location.open_store(clock, "worker-2")
    inside = most = 0

    async def count_parallel_turns(turn: TurnLog) -> TurnEnd:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await turn.read_transcript()
        inside -= 1
        return await agree(turn)

    async def run_repeatedly(desk: Store) -> None:
        for _ in range(20):
            try:
                await run_pending_turns(desk, session_id, count_parallel_turns)
            except Refused:
                await asyncio.sleep(0)

    numbers = [str(number) for number in range(12)]
    for number in numbers:
        await add_to_inbox(store, session_id, "test", number, text_message(number))
    async with asyncio.TaskGroup() as group:
        group.create_task(run_repeatedly(store))
        group.create_task(run_repeatedly(other))
    await other.close()
    assert most == 1
    assert await texts(store, session_id) == [text for number in numbers for text in (number, f"yes, {number}")]


async def test_a_refused_worker_can_rely_on_the_lease_owner(
    store_location: StoreLocation, clock: SettableClock, store: Store, session_id: SessionId
) -> None:
    other = store_location.open_store(clock, "worker-2")

    async def send_and_run(desk: Store, name: str) -> None:
        for number in range(40):
            await add_to_inbox(desk, session_id, name, str(number), text_message(f"{name} {number}"))
            with suppress(Refused):
                await run_pending_turns(desk, session_id, agree)

    async with asyncio.TaskGroup() as group:
        group.create_task(send_and_run(store, "ann"))
        group.create_task(send_and_run(other, "bob"))
    await other.close()
    assert await store.read(lambda tx: tx.inbox.list_unsettled(session_id)) == []
    assert len(await texts(store, session_id)) == 160


async def test_long_turn_renews_its_lease(store: Store, clock: SettableClock, session_id: SessionId) -> None:
    async def work_long(turn: TurnLog) -> TurnEnd:
        for _ in range(3):
            before = await _expiry(store)
            clock.advance(SHORT / 2)
            await _until_later(store, before)
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    assert await run_pending_turns(store, session_id, work_long, lease=SHORT) == TurnAnswered("yes, one")


async def test_losing_the_lease_cancels_the_turn(
    store_location: StoreLocation, clock: SettableClock, store: Store, session_id: SessionId
) -> None:
    other = store_location.open_store(clock, "worker-2")
    ended = asyncio.Event()

    async def overslept(turn: TurnLog) -> TurnEnd:
        try:
            clock.advance(LEASE)
            while await other.write(lambda tx: claim_session_lease(tx, LEASE, session_id)) is None:
                clock.advance(LEASE)  # the lease was renewed in between
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("the turn continues without a lease")

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    with pytest.raises(LeaseLost):
        await run_pending_turns(store, session_id, overslept, lease=SHORT)
    assert ended.is_set()
    await other.close()


async def test_former_lease_owner_cannot_write(
    store_location: StoreLocation, clock: SettableClock, store: Store, session_id: SessionId
) -> None:
    other = store_location.open_store(clock, "worker-2")

    async def overslept(turn: TurnLog) -> TurnEnd:
        clock.advance(LEASE)
        assert await run_pending_turns(other, session_id, agree) == TurnAnswered("yes, one")
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    with pytest.raises(LeaseLost):
        await run_pending_turns(store, session_id, overslept)
    assert await texts(store, session_id) == ["one", "yes, one"]
    await other.close()


async def test_interrupted_turn_is_resumed_before_new_messages(store: Store, session_id: SessionId) -> None:
    async def fail(turn: TurnLog) -> TurnEnd:
        await turn.add([answer("let me see")])
        raise StoreBusy("the disk is slow")

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    with pytest.raises(StoreBusy):
        await run_pending_turns(store, session_id, fail)
    await add_to_inbox(store, session_id, "test", "2", text_message("two"))
    await run_pending_turns(store, session_id, agree)
    assert await texts(store, session_id) == ["one", "let me see", "yes, let me see", "two", "yes, two"]
    assert await store.read(lambda tx: tx.inbox.list_unsettled(session_id)) == []


async def test_a_turn_that_ended_cannot_end_again(store: Store, session_id: SessionId) -> None:
    async def agree_twice(turn: TurnLog) -> TurnEnd:
        await agree(turn)
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    await run_pending_turns(store, session_id, agree_twice)
    assert await texts(store, session_id) == ["one", "yes, one"]


async def test_cancelled_turn_releases_the_lease(store: Store, session_id: SessionId) -> None:
    started = asyncio.Event()

    async def hang(turn: TurnLog) -> TurnEnd:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("never")

    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    async with asyncio.TaskGroup() as group:
        work = group.create_task(run_pending_turns(store, session_id, hang))
        await started.wait()
        work.cancel()
    assert await run_pending_turns(store, session_id, agree) == TurnAnswered("yes, one")


async def test_turn_cancelled_while_claiming_releases_the_lease(store: Store, session_id: SessionId) -> None:
    await add_to_inbox(store, session_id, "test", "1", text_message("one"))
    async with asyncio.TaskGroup() as group:
        work = group.create_task(run_pending_turns(store, session_id, agree))
        await asyncio.sleep(0)
        work.cancel()
    assert work.cancelled()
    assert await run_pending_turns(store, session_id, agree) == TurnAnswered("yes, one")


async def _expiry(store: Store) -> object:
    def expiry(tx: Transaction) -> object:
        sessions = tx.turns.find(running=True)
        lease = tx.leases.get(f"session:{sessions[0].session_id}")
        assert lease is not None
        return lease.expires_at

    return await store.read(expiry)


async def _until_later(store: Store, before: object) -> None:
    async def is_later() -> bool:
        return await _expiry(store) != before

    await until(is_later)
