"""Hints: whoever heeds a topic looks when there is something to see, whichever process it came from."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.storage.crowd import crowd
from tests.storage.engines import Place

from talaria.contracts.clock import SystemClock
from talaria.core.errors import StoreUnavailable
from talaria.storage.threaded import ThreadedStore

NEVER = 3600.0


@asynccontextmanager
async def opened(place: Place, *, look_seconds: float = NEVER) -> AsyncIterator[ThreadedStore]:
    """A store whose events are set by hints alone, unless a test asks for more."""
    store = place.open_store(SystemClock(), look_seconds=look_seconds)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def heeding(store: ThreadedStore, *topics: str) -> AsyncIterator[list[asyncio.Event]]:
    """The events of topics, none of them set, from when hints of other processes are heard."""
    async with AsyncExitStack() as stack:
        events = [await stack.enter_async_context(store.heeding(topic)) for topic in topics]
        await once(events[0])
        for event in events:
            event.clear()
        yield events


async def once(event: asyncio.Event) -> None:
    """Wait until an event is set, and clear it."""
    async with asyncio.timeout(20):
        await event.wait()
    event.clear()


@pytest.fixture
async def store(place: Place) -> AsyncIterator[ThreadedStore]:
    async with opened(place) as store:
        yield store


async def test_a_hint_reaches_all_who_heed_its_topic_in_this_process_at_once(store: ThreadedStore) -> None:
    async with heeding(store, "inbox", "inbox", "outbox") as [first, second, other]:
        await store.hint("inbox")
        assert (first.is_set(), second.is_set(), other.is_set()) == (True, True, False)


async def test_a_hint_reaches_another_worker(store: ThreadedStore, place: Place) -> None:
    async with heeding(store, "inbox") as [event], opened(place) as other:
        for number in range(5):
            await other.write(lambda tx, number=number: tx.state.put("key", str(number)))  # type: ignore[misc]
            await other.hint("inbox")
            await once(event)


async def test_a_hint_reaches_another_process_even_if_its_giver_ends_at_once(
    store: ThreadedStore, place: Place
) -> None:
    with crowd(1, "hint", place, "inbox") as [worker]:
        async with heeding(store, "inbox") as [event]:
            worker.start()
            await once(event)
            assert await asyncio.to_thread(worker.hear) is None


async def test_an_event_is_set_now_and_then_without_a_hint(place: Place) -> None:
    async with opened(place, look_seconds=0.01) as store, store.heeding("inbox") as event:
        for _ in range(5):
            await once(event)


async def test_heeding_can_end_and_begin_again(store: ThreadedStore, place: Place) -> None:
    async with opened(place) as other:
        for _ in range(3):
            async with heeding(store, "inbox") as [event]:
                await other.write(lambda tx: tx.state.put("key", ""))
                await other.hint("inbox")
                await once(event)


async def test_a_hint_that_nobody_heeds_is_no_mistake(store: ThreadedStore) -> None:
    await store.hint("inbox")
    await store.close()
    await store.hint("inbox")


async def test_closing_the_store_wakes_who_heeds_and_leaves_no_thread(store: ThreadedStore) -> None:
    async with heeding(store, "inbox") as [event]:
        waiting = asyncio.ensure_future(once(event))
        await store.close()
        await waiting
        with pytest.raises(StoreUnavailable):
            await store.read(lambda tx: tx.state.get("key"))
    assert [thread for thread in threading.enumerate() if thread.name == "store-hints"] == []


async def test_heeding_a_closed_store_looks_once_and_finds_that_out(store: ThreadedStore) -> None:
    await store.close()
    async with store.heeding("inbox") as event:
        await once(event)
