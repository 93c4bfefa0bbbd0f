"""Store for asyncio: worker threads that commit queued transactions together."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from talaria.contracts.store import Subscription, Transaction
from talaria.storage.database import ConnectionDatabase, Outcome, Work
from talaria.storage.worker_threads import BatchPolicy, WorkerThreads

if TYPE_CHECKING:  # loaded with the first subscription
    from talaria.storage.notifications import Notifications

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
        open_notifications: "Callable[[], Notifications]",
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

    def _get_notifications(self) -> "Notifications":
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
