"""Threads in which we take part: messages there are addressed to us without a mention."""

from collections import OrderedDict
from typing import Protocol

from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue

JOINED_THREAD = NamedValue("slack_thread", bool)  # by account, thread and channel
_MOST_CACHED = 5000
_MOST_STORED = 20_000


class ThreadStore(Protocol):
    """A store for the threads in which we take part."""

    async def put(self, channel: str, thread: str) -> None:
        """Save one durably."""

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether one is stored."""

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""

    async def clear(self) -> None:
        """Delete the oldest if there are too many."""


class MemoryThreadStore:
    """A `ThreadStore` in memory."""

    def __init__(self) -> None:
        self._threads: set[tuple[str, str]] = set()

    async def put(self, channel: str, thread: str) -> None:
        """Save one in memory."""
        self._threads.add((channel, thread))

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether one is stored."""
        return (channel, thread) in self._threads

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""
        return sorted(self._threads, key=lambda one: one[1])[-number:]

    async def clear(self) -> None:
        """Do nothing."""


class DurableThreadStore:
    """`ThreadStore` in the database, shared by all workers."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"{name}:"

    async def put(self, channel: str, thread: str) -> None:
        """Save one durably."""
        await self._store.write(lambda tx: JOINED_THREAD.write(tx, self._key(channel, thread), value=True))

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether one is stored."""
        return bool(await self._store.read(lambda tx: JOINED_THREAD.get(tx, self._key(channel, thread))))

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""
        keys = await self._store.read(lambda tx: JOINED_THREAD.keys(tx, self._prefix))
        thread_keys = [key.removeprefix(self._prefix).partition(":") for key in keys[-number:]]
        return [(channel, thread) for thread, _, channel in thread_keys]

    async def clear(self) -> None:
        """Delete the oldest if there are too many."""
        keys = await self._store.read(lambda tx: JOINED_THREAD.keys(tx, self._prefix))
        old = keys[:-_MOST_STORED]
        if old:
            await self._store.write(lambda tx: [JOINED_THREAD.delete(tx, key) for key in old])

    def _key(self, channel: str, thread: str) -> str:
        # A thread's id is its start time: the keys are sorted by age.
        return f"{self._prefix}{thread}:{channel}"


class JoinedThreads:
    """Caches recent threads, and looks up others in the store."""

    def __init__(self, state_store: ThreadStore) -> None:
        self._state_store = state_store
        self._cached: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def prune(self) -> None:
        """Delete the oldest."""
        await self._state_store.clear()

    async def join(self, channel: str, thread: str) -> None:
        """Record that we take part in a thread."""
        if not thread or (channel, thread) in self._cached:
            return
        await self._state_store.put(channel, thread)
        self._remember(channel, thread)

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return the latest ones, as channel and thread."""
        return await self._state_store.latest(number)

    async def has(self, channel: str, thread: str) -> bool:
        """Return whether we take part in a thread."""
        if not thread:
            return False
        if (channel, thread) not in self._cached and await self._state_store.has(channel, thread):
            self._remember(channel, thread)
        return (channel, thread) in self._cached

    def _remember(self, channel: str, thread: str) -> None:
        self._cached[channel, thread] = None
        if len(self._cached) > _MOST_CACHED:
            self._cached.popitem(last=False)
