"""Event streams that can be read again from any point."""

import asyncio

from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.storage.async_store import ThreadedStore
from talaria.testing.clock import NOON


def test_events_are_numbered_from_one_without_gaps(mine: Transaction, theirs: Transaction) -> None:
    assert mine.events.append("run:1", [("text", "a"), ("text", "b")]) == 2
    assert theirs.events.append("run:1", [("end", "")]) == 3
    assert mine.events.append("run:2", [("text", "x")]) == 1
    assert mine.events.after("run:1", 0) == [
        StreamEvent("run:1", 1, NOON, "text", "a"),
        StreamEvent("run:1", 2, NOON, "text", "b"),
        StreamEvent("run:1", 3, NOON, "end", ""),
    ]


def test_a_stream_is_read_again_from_any_point(mine: Transaction) -> None:
    mine.events.append("run:1", [("text", str(number)) for number in range(5)])
    assert [event.seq for event in mine.events.after("run:1", 3)] == [4, 5]
    assert [event.seq for event in mine.events.after("run:1", 1, limit=2)] == [2, 3]
    assert mine.events.after("run:1", 5) == []
    assert mine.events.after("nowhere", 0) == []


def test_appending_no_events_leaves_the_stream_unchanged(mine: Transaction) -> None:
    mine.events.append("run:1", [("text", "a")])
    assert mine.events.append("run:1", []) == 1
    assert mine.events.append("run:2", []) == 0


def test_dropped_stream_is_numbered_from_one_again(mine: Transaction) -> None:
    for stream in ("run:1", "run:2"):
        mine.events.append(stream, [("text", "a"), ("text", "b")])
    mine.events.drop("run:1")
    assert mine.events.after("run:1", 0) == []
    assert mine.events.append("run:1", [("text", "a")]) == 1
    assert len(mine.events.after("run:2", 0)) == 2


def test_dropping_early_events_preserves_the_numbers_of_the_rest(mine: Transaction) -> None:
    mine.events.append("run:1", [("text", str(number)) for number in range(5)])
    mine.events.drop("run:1", through=3)
    assert [event.seq for event in mine.events.after("run:1", 0)] == [4, 5]
    assert mine.events.append("run:1", [("end", "")]) == 6


async def test_events_from_many_tasks_leave_no_gaps(store: ThreadedStore) -> None:
    lasts = await asyncio.gather(*(store.write(lambda tx: tx.events.append("s", [("a", "")] * 3)) for _ in range(20)))
    assert sorted(lasts) == list(range(3, 61, 3))
    events = await store.read(lambda tx: tx.events.after("s", 0))
    assert [event.seq for event in events] == list(range(1, 61))
