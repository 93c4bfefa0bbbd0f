"""Fan-out of live events: one watcher per topic and process, and one queue per client, for all front doors."""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

MAX_QUEUED = 400_000  # bytes; a slower reader gets what it missed from the store, or a snapshot
ItemT = TypeVar("ItemT")


class Follower(Generic[ItemT]):
    """The queue of one client; adding to it never waits.

    A server has many of these at rest, so each is small: no queue or event object of its own.
    """

    __slots__ = ("_error", "_has_ended", "_queue", "_size", "_waiter")

    def __init__(self) -> None:
        self._queue: list[ItemT] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._has_ended = False
        self._error: Exception | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether it was ended; what was queued then is lost."""
        return self._has_ended

    @property
    def is_pending(self) -> bool:
        """Return whether something is queued."""
        return bool(self._queue)

    @property
    def queued(self) -> int:
        """Return how many bytes are queued."""
        return self._size

    @property
    def is_slow(self) -> bool:
        """Return whether too much is queued."""
        return self._size > MAX_QUEUED

    def push(self, item: ItemT, size: int) -> None:
        """Queue an item of this many bytes."""
        self._queue.append(item)
        self._size += size
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """End it now; `take` raises ``error`` from now on."""
        self._has_ended = True
        self._error = error
        self._wake()

    async def take(self) -> list[ItemT]:
        """Wait for items and return all that are queued; nothing if it was ended."""
        if not self._queue and not self._has_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error
        items, self._queue, self._size = self._queue, [], 0
        return [] if self._has_ended else items

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


FollowerT = TypeVar("FollowerT")


class Channel(ABC, Generic[FollowerT]):
    """The followers of one topic, which is watched once for all of them and only while there are any."""

    def __init__(self, jobs: asyncio.TaskGroup) -> None:
        self.followers: set[FollowerT] = set()
        self._jobs = jobs
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_watched(self) -> bool:
        """Return whether `watch` is running."""
        return self._watching is not None and not self._watching.done()

    def join(self, follower: FollowerT) -> None:
        """Add a follower."""
        self.followers.add(follower)
        if not self.is_watched:
            self._watching = self._jobs.create_task(self.watch())

    def leave(self, follower: FollowerT) -> None:
        """Remove a follower."""
        self.followers.discard(follower)
        if not self.followers:
            self.close()

    def close(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    @abstractmethod
    async def watch(self) -> None:
        """Pass on what happens, until cancelled or nothing more can happen."""
