"""Notifications: a commit of any process wakes the subscribers of the topics it notifies."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from tests.storage.concurrent_processes import start_workers
from tests.storage.engines import StoreLocation
from tests.storage.subscription_probe import clear, notified, wait_for_wake_up, wait_until_connected

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Subscription, Transaction
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.errors import Refused, StoreError, StoreUnavailable
from talaria.storage.async_store import ThreadedStore

NUMBER = NamedValue("number", int)

NEVER = 3600.0
WORKERS = 8


@asynccontextmanager
async def opened(store_location: StoreLocation, *, poll_seconds: float = NEVER) -> AsyncIterator[ThreadedStore]:
    """Open a store whose subscriptions wake only by notifications, unless a test sets a poll interval."""
    store = store_location.open_store(SystemClock(), poll_seconds=poll_seconds)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def subscribed(store: ThreadedStore, other: ThreadedStore, *topics: str) -> AsyncIterator[list[Subscription]]:
    """Subscribe, wait until notifications of other processes are received, and clear pending ones."""
    async with AsyncExitStack() as stack:
        subscriptions = [await stack.enter_async_context(store.subscribe(topic)) for topic in topics]
        await wait_until_connected(store, other)
        await clear(*subscriptions)
        yield subscriptions


@pytest.fixture
async def store(store_location: StoreLocation) -> AsyncIterator[ThreadedStore]:
    async with opened(store_location) as store:
        yield store


@pytest.fixture
async def other(store_location: StoreLocation) -> AsyncIterator[ThreadedStore]:
    """The same store, as another process has it open."""
    async with opened(store_location) as store:
        yield store


def put_and_notify(tx: Transaction, number: int) -> None:
    NUMBER.write(tx, SINGLE, number)
    tx.notify("inbox")


def put_and_refuse(tx: Transaction) -> None:
    NUMBER.write(tx, SINGLE, 1)
    tx.notify("inbox")
    raise Refused("no")


async def test_a_notification_wakes_all_subscribers_of_its_topic_before_the_write_returns(
    store: ThreadedStore, other: ThreadedStore
) -> None:
    async with subscribed(store, other, "inbox", "inbox", "outbox") as [first, second, unrelated]:
        await store.write(lambda tx: tx.notify("inbox"))
        assert (first.is_pending, second.is_pending, unrelated.is_pending) == (True, True, False)
        assert await first.wait()
        assert not first.is_pending


async def test_a_commit_of_this_process_wakes_a_subscriber_once(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox", "end") as [subscription, end]:
        for _ in range(10):
            await store.write(lambda tx: tx.notify("inbox"))
            await notified(subscription)
        await other.write(lambda tx: tx.notify("end"))
        await notified(end)  # by then the engine has delivered the earlier notifications
        assert not subscription.is_pending


async def test_commit_of_another_process_wakes_only_its_topics(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox", "outbox", "end") as [inbox, outbox, end]:
        for number in range(5):
            await other.write(partial(put_and_notify, number=number))
            await notified(inbox)
        await other.write(lambda tx: NUMBER.write(tx, SINGLE, -1))
        await other.write(lambda tx: tx.notify("end"))
        await notified(end)
        assert (inbox.is_pending, outbox.is_pending) == (False, False)


async def test_own_commits_do_not_hide_commits_of_another_process(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox") as [subscription]:
        for number in range(30):
            await store.write(lambda tx: tx.notify("inbox"))
            await notified(subscription)
            await other.write(partial(put_and_notify, number=number))
            while await store.read(lambda tx: NUMBER.get(tx, SINGLE)) != number:
                await notified(subscription)
            await clear(subscription)


async def test_a_subscription_may_have_several_topics(store: ThreadedStore, other: ThreadedStore) -> None:
    async with store.subscribe("inbox", "outbox") as subscription:
        await wait_until_connected(store, other)
        await clear(subscription)
        for writer in (store, other):
            for topic in ("inbox", "outbox"):
                await writer.write(lambda tx, topic=topic: tx.notify(topic))  # type: ignore[misc]
                await notified(subscription)


async def test_rolled_back_transaction_sends_no_notification(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox", "end") as [subscription, end]:
        for writer in (store, other):
            with pytest.raises(Refused):
                await writer.write(put_and_refuse)
            await writer.write(lambda tx: tx.notify("end"))
            await notified(end)
            assert not subscription.is_pending


async def test_failed_work_in_a_group_commit_sends_no_notification(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox", "outbox", "end") as [inbox, outbox, end]:
        for writer in (store, other):
            works = [put_and_refuse, *[lambda tx: tx.notify("outbox")] * WORKERS]
            results = await asyncio.gather(*map(writer.write, works), return_exceptions=True)
            assert [type(result) for result in results] == [Refused, *[type(None)] * WORKERS]
            await notified(outbox)
            await writer.write(lambda tx: tx.notify("end"))
            await notified(end)
            assert not inbox.is_pending
            await clear(outbox)


async def test_read_transaction_cannot_notify(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox") as [subscription]:
        with pytest.raises(StoreError):
            await store.read(lambda tx: tx.notify("inbox"))
        assert not subscription.is_pending


async def test_process_that_exits_at_once_still_notifies(
    store: ThreadedStore, other: ThreadedStore, store_location: StoreLocation
) -> None:
    with start_workers(1, "notify", store_location, "inbox") as [worker]:
        async with subscribed(store, other, "inbox") as [subscription]:
            worker.start()
            await notified(subscription)
            assert await asyncio.to_thread(worker.read_answer) is None


async def test_first_wait_of_a_subscription_returns_at_once_without_a_notification(store: ThreadedStore) -> None:
    async with store.subscribe("inbox") as subscription:
        assert subscription.is_pending
        assert not await subscription.wait()


async def test_a_subscription_wakes_periodically_without_a_notification(store_location: StoreLocation) -> None:
    async with opened(store_location, poll_seconds=0.01) as store, store.subscribe("inbox") as subscription:
        for _ in range(5):
            await wait_for_wake_up(subscription)


async def test_subscription_can_be_woken_by_its_own_process(store: ThreadedStore, other: ThreadedStore) -> None:
    async with subscribed(store, other, "inbox") as [subscription]:
        subscription.wake()
        assert not await subscription.wait()


async def test_topic_can_be_subscribed_again_after_a_subscription_ended(
    store: ThreadedStore, other: ThreadedStore
) -> None:
    for _ in range(3):
        async with subscribed(store, other, "inbox") as [subscription]:
            await other.write(lambda tx: tx.notify("inbox"))
            await notified(subscription)


async def test_a_topic_without_subscribers_can_be_notified(store: ThreadedStore) -> None:
    await store.write(lambda tx: tx.notify("inbox"))


async def test_closing_the_store_wakes_subscribers_and_leaves_no_thread(
    store: ThreadedStore, other: ThreadedStore
) -> None:
    async with subscribed(store, other, "inbox") as [subscription]:
        waiting = asyncio.ensure_future(wait_for_wake_up(subscription))
        await store.close()
        await waiting
        with pytest.raises(StoreUnavailable):
            await store.read(lambda tx: NUMBER.get(tx, SINGLE))
    assert [thread for thread in threading.enumerate() if thread.name == "store-notifications"] == []


async def test_a_subscription_to_a_closed_store_wakes_once(store: ThreadedStore) -> None:
    await store.close()
    async with store.subscribe("inbox") as subscription:
        await wait_for_wake_up(subscription)
