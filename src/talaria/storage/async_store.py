"""Store for asyncio: worker threads that commit queued transactions together, and subscriptions to topics."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol, TypeVar

from talaria.contracts.store import Subscription, Transaction
from talaria.storage.database import ConnectionDatabase, Outcome, Work
from talaria.storage.worker_threads import BatchPolicy, WorkerThreads

Deliver = Callable[[Mapping[str, int] | None], None]


class NotificationListener(Protocol):
    """Receiver of notifications from other processes. Errors are logged, never raised."""

    def listen(self, deliver: Deliver) -> None:
        """Start calling ``deliver``, on any thread, with topics and their sequence numbers.

        ``None`` means every topic: sent once when listening starts, and whenever notifications may have been lost.
        """

    def stop_listening(self) -> None:
        """Stop calling ``deliver``; called when the last subscription ends."""

    def close(self) -> None:
        """Stop listening and wait for the threads to end."""


class TopicSubscription:
    """`Subscription` implementation for one task in one event loop."""

    def __init__(self, topics: frozenset[str], loop: asyncio.AbstractEventLoop) -> None:
        self.topics = topics
        self.loop = loop
        self._event = asyncio.Event()
        self._event.set()
        self._is_notified = False
        self._last_seq = 0

    @property
    def is_pending(self) -> bool:
        """Return whether the next `wait` returns immediately."""
        return self._event.is_set()

    async def wait(self) -> bool:
        """Wait until woken and return whether a topic was notified since the last call."""
        await self._event.wait()
        self._event.clear()
        notified, self._is_notified = self._is_notified, False
        return notified

    def wake(self) -> None:
        """Wake the waiting task without a notification; call in its event loop."""
        self._event.set()

    def set_notified(self) -> None:
        """Wake the waiting task because a topic was notified; call in its event loop."""
        self._is_notified = True
        self._event.set()

    def accept(self, notified: Mapping[str, int] | None) -> bool:
        """Return whether to wake the task; deduplicates commits reported both locally and by the listener.

        A task woken for a commit also reads the effects of all earlier commits, so storing the last number is enough.
        """
        if notified is None:
            self._last_seq = 0
            return True
        seqs = [notified[topic] for topic in self.topics if topic in notified]
        if not seqs or 0 < max(seqs) <= self._last_seq:
            return False
        self._last_seq = max(seqs)
        return True


class Notifications:
    """Subscriptions of one process, each woken at least every ``max_interval`` seconds.

    The periodic wake-up bounds the delay after lost notifications. It wakes all subscriptions of an event loop
    together, so that their reads share one transaction.
    """

    def __init__(self, listener: NotificationListener, *, max_interval: float) -> None:
        self._listener = listener
        self._max_interval = max_interval
        self._subscriptions: set[TopicSubscription] = set()
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self._all_woken_at = 0.0
        self._lock = threading.Lock()
        self._closed = False

    @asynccontextmanager
    async def subscribe(self, *topics: str) -> AsyncIterator[TopicSubscription]:
        """Return a subscription that is pending at once, and again when listening to other processes starts."""
        subscription = TopicSubscription(frozenset(topics), asyncio.get_running_loop())
        self._add(subscription)
        try:
            yield subscription
        finally:
            self._remove(subscription)

    def deliver(self, notified: Mapping[str, int] | None) -> None:
        """Wake the subscriptions of the given topics, or all for ``None``; safe on any thread."""
        with self._lock:
            accepted = [one for one in self._subscriptions if one.accept(notified)]
            if notified is None:
                self._all_woken_at = time.monotonic()
        by_loop: dict[asyncio.AbstractEventLoop, list[TopicSubscription]] = {}
        for subscription in accepted:
            by_loop.setdefault(subscription.loop, []).append(subscription)
        for loop, subscriptions in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed and its tasks have ended
                loop.call_soon_threadsafe(_wake_all, subscriptions, notified is not None)

    def close(self) -> None:
        """Wake every subscription a last time and stop listening to other processes."""
        with self._lock:
            self._closed = True
        self.deliver(None)
        self._listener.close()

    def _add(self, subscription: TopicSubscription) -> None:
        with self._lock:
            self._subscriptions.add(subscription)
            if subscription.loop not in self._timers:
                self._start_timer(subscription.loop, self._max_interval)
            if len(self._subscriptions) == 1 and not self._closed:
                self._listener.listen(self.deliver)

    def _remove(self, subscription: TopicSubscription) -> None:
        with self._lock:
            self._subscriptions.remove(subscription)
            if all(other.loop is not subscription.loop for other in self._subscriptions):
                self._timers.pop(subscription.loop).cancel()
            if not self._subscriptions and not self._closed:
                self._listener.stop_listening()

    def _wake_periodically(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake all subscriptions of a loop, unless all were woken within ``max_interval``."""
        with self._lock:
            remaining = self._all_woken_at + self._max_interval - time.monotonic()
            if remaining <= 0:
                _wake_all([one for one in self._subscriptions if one.loop is loop], notified=False)
            if not self._closed:
                self._start_timer(loop, remaining if remaining > 0 else self._max_interval)

    def _start_timer(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._timers[loop] = loop.call_later(seconds, self._wake_periodically, loop)


def _wake_all(subscriptions: list[TopicSubscription], notified: bool) -> None:
    for subscription in subscriptions:
        if notified:
            subscription.set_notified()
        else:
            subscription.wake()


T = TypeVar("T")
_WRITE_BATCH = 256
_READ_BATCH = 16  # small, because every read in a batch waits for the slowest one


class ThreadedStore:
    """`Store` implementation for asyncio on writer and reader threads.

    Notifications of a commit are delivered in this process before `write` returns.
    """

    def __init__(
        self,
        open_database: Callable[[], ConnectionDatabase],
        *,
        writers: int,
        readers: int,
        open_notifications: Callable[[], Notifications],
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._writers = WorkerThreads(
            "store-writer",
            writers,
            open_database,
            BatchPolicy(self._write_batch, at_once=_WRITE_BATCH, maintenance=True),
        )
        self._readers = WorkerThreads("store-reader", readers, open_database, BatchPolicy(_read, at_once=_READ_BATCH))
        self._open_notifications = open_notifications
        self._on_close = closing
        self._notifications: Notifications | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on a consistent snapshot of the store and return its result."""
        result: T = await self._readers.hand_over(work)
        return result

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction and return its result once the commit is durable."""
        result: T = await self._writers.hand_over(work)
        return result

    async def close(self) -> None:
        """Reject new work, finish queued work and close all connections."""
        with self._lock:
            self._closed = True
        self._readers.end()
        self._writers.end()
        await asyncio.to_thread(self._close)

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        """Return a subscription to the notifications of all processes on these topics."""
        return self._get_notifications().subscribe(*topics)

    def _write_batch(self, database: ConnectionDatabase, works: list[Work]) -> list[Outcome]:
        outcomes = database.write_all(works)
        notified = database.take_notified()
        if notified and self._notifications is not None:
            self._notifications.deliver(notified)
        return outcomes

    def _get_notifications(self) -> Notifications:
        with self._lock:
            if self._notifications is None:
                self._notifications = self._open_notifications()
                if self._closed:
                    self._notifications.close()
            return self._notifications

    def _close(self) -> None:
        self._readers.finish()
        self._writers.finish()
        with self._lock:
            notifications = self._notifications
        if notifications is not None:
            notifications.close()
        self._on_close()


def _read(database: ConnectionDatabase, works: list[Work]) -> list[Outcome]:
    return database.read_all(works)
