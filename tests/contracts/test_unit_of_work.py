"""Transactions over all stores: atomic, and isolated by a snapshot."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tests.contracts.sample_messages import text_message, texts
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.queues import Arrival, OutboxFilter, Outgoing
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.errors import NotFound, StoreError, StoreUnavailable
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Usage
from talaria.storage.async_store import ThreadedStore
from talaria.testing.clock import SettableClock
from talaria.testing.wait import LIMIT


class Mishap(Exception):
    """An error that is not a `TalariaError`."""


def put(key: str) -> Callable[[Transaction], int]:
    """Return work that writes a value."""
    return lambda tx: tx.named_values.put("test", key, "")


def test_transaction_writes_several_stores_together(database: Database, mine: Transaction) -> None:
    session = mine.sessions.create(NewSession(source="cli")).id

    def end_of_turn(tx: Transaction) -> None:
        tx.messages.append(session, [text_message("hello", "assistant")])
        tx.outbox.add(Outgoing(key="k", session_id=session, address=Address("telegram", "1"), payload=""))
        tx.turns.begin(session, TurnId("t"))
        tx.turns.end(TurnId("t"), "answered")

    database.write(end_of_turn)
    assert len(mine.messages.load(session)) == len(mine.outbox.find(OutboxFilter(session_id=session))) == 1


def test_transaction_that_raises_is_rolled_back(database: Database, mine: Transaction) -> None:
    session = mine.sessions.create(NewSession(source="cli")).id

    def work(tx: Transaction) -> None:
        tx.messages.append(session, [text_message("hello")])
        tx.named_values.put("test", "goal", "rest")
        tx.inbox.add(Arrival(session_id=session, source="cli", external_id="1", payload=""))
        tx.events.append("run:1", [("a", "")])
        raise Mishap

    with pytest.raises(Mishap):
        database.write(work)
    assert mine.messages.load(session) == []
    assert mine.named_values.get("test", "goal") is None
    assert mine.inbox.list_unsettled(session) == []
    assert mine.events.append("run:1", [("a", "")]) == 1
    assert mine.messages.append(session, [text_message("again")]) == 1


def test_transaction_reads_its_own_writes(database: Database) -> None:
    def work(tx: Transaction) -> list[int]:
        session = tx.sessions.create(NewSession(source="cli")).id
        tx.messages.append(session, [text_message("a")])
        tx.named_values.put("test", "key", "value")
        assert tx.named_values.get("test", "key") is not None
        return [stored.seq for stored in tx.messages.load(session)]

    assert database.write(work) == [1]


def test_value_too_large_for_the_engine_rolls_back_its_transaction(database: Database, mine: Transaction) -> None:
    session = mine.sessions.create(NewSession(source="cli")).id

    def work(tx: Transaction) -> None:
        tx.named_values.put("test", "before", "")
        tx.usage.add(session, Usage(calls=2**70))
        tx.named_values.put("test", "behind", "")
        tx.named_values.get("test", "behind")

    with pytest.raises((StoreError, OverflowError)) as raised:
        database.write(work)
    assert not isinstance(raised.value, StoreUnavailable)
    assert mine.named_values.find("test", "") == []


def test_read_transaction_sees_a_snapshot_while_another_worker_writes(database: Database, other: Database) -> None:
    database.write(lambda tx: tx.named_values.put("test", "key", "old"))

    def work(tx: Transaction) -> list[str]:
        seen = [row.value for _, row in tx.named_values.find("test", "")]
        other.write(lambda their: [their.named_values.put("test", key, "new") for key in ("key", "more")])
        return seen + [row.value for _, row in tx.named_values.find("test", "")]

    assert database.read(work) == ["old", "old"]
    assert database.read(lambda tx: len(tx.named_values.find("test", ""))) == 2


def test_uncommitted_write_is_invisible_to_another_worker(database: Database, other: Database) -> None:
    def work(tx: Transaction) -> int:
        tx.named_values.put("test", "key", "value")
        return other.read(lambda their: len(their.named_values.find("test", "")))

    assert database.write(work) == 0


def test_a_read_that_raises_leaves_the_store_usable(database: Database) -> None:
    def work(tx: Transaction) -> None:
        tx.named_values.get("test", "key")
        raise Mishap

    with pytest.raises(Mishap):
        database.read(work)
    assert database.write(lambda tx: tx.named_values.put("test", "key", "value")) == 1


def test_committed_write_is_read_after_reopening_the_store(store_location: StoreLocation, clock: SettableClock) -> None:
    for times in (1, 2):
        database = store_location.open(clock)
        assert database.write(lambda tx: tx.named_values.put("test", "key", "value")) == times
        database.close()


def test_two_workers_that_write_the_same_keys_in_opposite_order_both_succeed(
    database: Database, other: Database
) -> None:
    meeting = threading.Barrier(2)

    def change(first: str, second: str) -> Callable[[Transaction], None]:
        def work(tx: Transaction) -> None:
            tx.named_values.put("test", first, "")
            with suppress(
                threading.BrokenBarrierError
            ):  # the engine admits one worker at a time, or runs the work again
                meeting.wait(0.3)
            tx.named_values.put("test", second, "")

        return work

    with ThreadPoolExecutor() as pool:
        one = pool.submit(database.write, change("a", "b"))
        two = pool.submit(other.write, change("b", "a"))
        one.result()
        two.result()
    assert database.read(lambda tx: [row.version for _, row in tx.named_values.find("test", "")]) == [2, 2]


def test_branch_retains_parent_messages_when_the_parent_is_deleted_concurrently(
    database: Database, other: Database
) -> None:
    parent = database.write(lambda tx: tx.sessions.create(NewSession(source="cli")).id)
    database.write(lambda tx: tx.messages.append(parent, [text_message("a"), text_message("b")]))
    branched, deleted = threading.Event(), threading.Event()

    def branch(tx: Transaction) -> SessionId:
        session = tx.sessions.create(NewSession(source="cli", parent_id=parent, parent_seq=2)).id
        branched.set()
        deleted.wait(0.3)
        return session

    def delete() -> None:
        branched.wait()
        other.write(lambda tx: tx.sessions.delete(parent))
        deleted.set()

    with ThreadPoolExecutor() as pool:
        deletion = pool.submit(delete)
        session = pool.submit(database.write, branch).result()
        deletion.result()
    assert database.read(lambda tx: len(tx.messages.load(session))) == 2


def test_branching_from_a_session_that_is_deleted_concurrently_is_refused(database: Database, other: Database) -> None:
    parent = database.write(lambda tx: tx.sessions.create(NewSession(source="cli")).id)
    database.write(lambda tx: tx.messages.append(parent, [text_message("a")]))
    deleted, branched = threading.Event(), threading.Event()

    def delete(tx: Transaction) -> None:
        tx.sessions.delete(parent)
        tx.sessions.get(parent)
        deleted.set()
        branched.wait(0.3)

    def branch() -> None:
        deleted.wait()
        other.write(lambda tx: tx.sessions.create(NewSession(source="cli", parent_id=parent, parent_seq=1)))
        branched.set()

    with ThreadPoolExecutor() as pool:
        birth = pool.submit(branch)
        pool.submit(database.write, delete).result()
        with pytest.raises(NotFound):
            birth.result()


def test_branch_retains_messages_when_both_ancestors_are_deleted_concurrently(
    database: Database, other: Database, mine: Transaction
) -> None:
    root = mine.sessions.create(NewSession(source="cli")).id
    mine.messages.append(root, [text_message("a")])
    branch = mine.sessions.create(NewSession(source="cli", parent_id=root, parent_seq=1)).id
    mine.messages.append(branch, [text_message("b")])
    leaf = mine.sessions.create(NewSession(source="cli", parent_id=branch, parent_seq=2)).id
    first, second = threading.Event(), threading.Event()

    def delete_branch(tx: Transaction) -> None:
        tx.sessions.delete(branch)
        tx.sessions.get(branch)
        first.set()
        second.wait(0.3)

    def delete_root() -> None:
        first.wait()
        other.write(lambda tx: tx.sessions.delete(root))
        second.set()

    with ThreadPoolExecutor() as pool:
        later = pool.submit(delete_root)
        pool.submit(database.write, delete_branch).result()
        later.result()
    assert texts(mine.messages.load(leaf)) == [(1, "a"), (2, "b")]


async def test_async_transaction_returns_its_value(store: ThreadedStore) -> None:
    assert await store.write(lambda tx: tx.named_values.put("test", "key", "value")) == 1
    entry = await store.read(lambda tx: tx.named_values.get("test", "key"))
    assert entry is not None
    assert entry.value == "value"


async def test_errors_of_a_transaction_are_raised_in_the_caller(store: ThreadedStore) -> None:
    def fails(_: Transaction) -> None:
        raise Mishap

    for call in (store.read, store.write):
        with pytest.raises(Mishap):
            await call(fails)
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.messages.append(SessionId("nowhere"), [text_message("a")]))


async def test_stop_iteration_is_raised_in_the_caller_as_runtime_error(store: ThreadedStore) -> None:
    async with asyncio.timeout(LIMIT):
        for call in (store.read, store.write):
            with pytest.raises(RuntimeError):
                await call(lambda _: next(iter(())))


async def test_failed_write_in_a_group_commit_does_not_affect_the_others(store: ThreadedStore) -> None:
    hold, entered = threading.Event(), threading.Event()

    def slow(_: Transaction) -> None:
        entered.set()
        hold.wait()

    def piece(number: int) -> Callable[[Transaction], None]:
        def work(tx: Transaction) -> None:
            tx.named_values.put("test", f"{number:02}", "")
            if number % 5 == 2:
                raise Mishap

        return work

    async with asyncio.TaskGroup() as group:
        for _ in range(4):  # every writer is busy while the rest queues up
            group.create_task(store.write(slow))
        await asyncio.to_thread(entered.wait)
        works = [asyncio.ensure_future(store.write(piece(n))) for n in range(20)]
        await asyncio.sleep(0)
        hold.set()
        outcomes = await asyncio.gather(*works, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Mishap if n % 5 == 2 else type(None) for n in range(20)]
    keys = [key for key, _ in await store.read(lambda tx: tx.named_values.find("test", ""))]
    assert keys == [f"{n:02}" for n in range(20) if n % 5 != 2]


async def test_failed_read_in_a_group_does_not_affect_the_others(store: ThreadedStore) -> None:
    hold, entered = threading.Event(), threading.Event()

    def slow(_: Transaction) -> None:
        entered.set()
        hold.wait()

    def piece(number: int) -> Callable[[Transaction], int]:
        def work(tx: Transaction) -> int:
            if number % 5 == 2:
                tx.named_values.put("test", "key", "reads may not write: on some engines this undoes the view of all")
            return len(tx.named_values.find("test", ""))

        return work

    await store.write(put("key"))
    async with asyncio.TaskGroup() as group:
        for _ in range(4):  # every reader is busy while the rest queues up
            group.create_task(store.read(slow))
        await asyncio.to_thread(entered.wait)
        works = [asyncio.ensure_future(store.read(piece(n))) for n in range(20)]
        await asyncio.sleep(0)
        hold.set()
        outcomes = await asyncio.gather(*works, return_exceptions=True)
    found = ["refused" if isinstance(outcome, StoreError) else outcome for outcome in outcomes]
    assert found == ["refused" if n % 5 == 2 else 1 for n in range(20)]


async def test_write_of_a_cancelled_task_is_completed(store: ThreadedStore, database: Database) -> None:
    hold, entered = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        tx.named_values.put("test", "a", "")
        entered.set()
        hold.wait()
        tx.named_values.put("test", "b", "")

    running = asyncio.ensure_future(store.write(work))
    await asyncio.to_thread(entered.wait)
    waiting = [asyncio.ensure_future(store.write(put(f"c{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    for one in (running, *waiting):
        one.cancel()
    hold.set()
    await asyncio.wait([running, *waiting])
    await store.close()
    rows = database.read(lambda tx: tx.named_values.find("test", ""))
    assert [key for key, _ in rows] == ["a", "b", "c0", "c1", "c2"]


async def test_closing_the_store_finishes_queued_writes(store: ThreadedStore, database: Database) -> None:
    works = [asyncio.ensure_future(store.write(put(str(n)))) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*works) == [1] * 50
    assert database.read(lambda tx: len(tx.named_values.find("test", ""))) == 50


async def test_closed_store_refuses_transactions(store: ThreadedStore) -> None:
    await store.read(lambda tx: tx.named_values.get("test", "key"))
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    for _ in range(2):
        for call in (store.read, store.write):
            async with asyncio.timeout(LIMIT):
                with pytest.raises(StoreUnavailable, match="closed"):
                    await call(lambda tx: tx.named_values.get("test", "key"))
        await closing


async def test_reads_continue_while_a_writer_is_busy(store: ThreadedStore) -> None:
    hold = threading.Event()
    writing = asyncio.ensure_future(store.write(lambda tx: (tx.named_values.put("test", "key", ""), hold.wait())))
    async with asyncio.timeout(LIMIT):
        assert await store.read(lambda tx: tx.named_values.get("test", "key")) is None
    hold.set()
    await writing


async def test_long_read_does_not_block_another_read(store: ThreadedStore) -> None:
    hold, entered = threading.Event(), threading.Event()

    def long(tx: Transaction) -> None:
        tx.named_values.get("test", "key")
        entered.set()
        hold.wait()

    reading = asyncio.ensure_future(store.read(long))
    await asyncio.to_thread(entered.wait)
    try:
        async with asyncio.timeout(LIMIT):
            assert await store.read(lambda tx: tx.named_values.get("test", "key")) is None
    finally:
        hold.set()
    await reading


def test_read_transaction_cannot_write(database: Database) -> None:
    with pytest.raises(StoreError):
        database.read(lambda tx: tx.named_values.put("test", "key", "value"))
    assert database.write(lambda tx: tx.named_values.put("test", "key", "value")) == 1


def test_store_can_be_closed_twice(store_location: StoreLocation, clock: SettableClock) -> None:
    database = store_location.open(clock)
    database.close()
    database.close()
