"""The threads in which we take part: what is said there is meant for us, also when nobody names us."""

from collections import OrderedDict
from typing import Protocol

from talaria.contracts.store import Store

_KNOWN = 5000
_KEPT = 20_000


class Shelf(Protocol):
    """Keeps the threads in which we take part."""

    async def put(self, channel: str, thread: str) -> None:
        """Keep one durably."""

    async def has(self, channel: str, thread: str) -> bool:
        """Tell whether one is kept."""

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return those that began last, as channel and thread."""

    async def clear(self) -> None:
        """Forget the oldest where they are too many."""


class MemoryShelf:
    """Implements `Shelf` for an app that has no store."""

    def __init__(self) -> None:
        self._kept: set[tuple[str, str]] = set()

    async def put(self, channel: str, thread: str) -> None:
        """Keep one as long as the process lives."""
        self._kept.add((channel, thread))

    async def has(self, channel: str, thread: str) -> bool:
        """Tell whether one is kept."""
        return (channel, thread) in self._kept

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return those that began last, as channel and thread."""
        return sorted(self._kept, key=lambda one: one[1])[-number:]

    async def clear(self) -> None:
        """Leave everything as it is."""


class StoreShelf:
    """Implements `Shelf` in the store, for all workers: what one of them is asked another one may hear more of."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"thread:{name}:"

    async def put(self, channel: str, thread: str) -> None:
        """Keep one durably."""
        await self._store.write(lambda tx: tx.state.put(self._key(channel, thread), ""))

    async def has(self, channel: str, thread: str) -> bool:
        """Tell whether one is kept."""
        return await self._store.read(lambda tx: tx.state.get(self._key(channel, thread))) is not None

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return those that began last, as channel and thread."""
        entries = await self._store.read(lambda tx: tx.state.with_prefix(self._prefix))
        places = [entry.key.removeprefix(self._prefix).partition(":") for entry in entries[-number:]]
        return [(channel, thread) for thread, _, channel in places]

    async def clear(self) -> None:
        """Forget the oldest where they are too many."""
        entries = await self._store.read(lambda tx: tx.state.with_prefix(self._prefix))
        old = [entry.key for entry in entries[:-_KEPT]]
        if old:
            await self._store.write(lambda tx: [tx.state.delete(key) for key in old])

    def _key(self, channel: str, thread: str) -> str:
        # A thread's id is the time at which it began: the keys stand in the order of their age.
        return f"{self._prefix}{thread}:{channel}"


class OurThreads:
    """Knows those of late by heart, and asks the shelf for others."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def begin(self) -> None:
        """Tidy up."""
        await self._shelf.clear()

    async def join(self, channel: str, thread: str) -> None:
        """Note that we take part in one."""
        if not thread or (channel, thread) in self._known:
            return
        await self._shelf.put(channel, thread)
        self._remember(channel, thread)

    async def latest(self, number: int) -> list[tuple[str, str]]:
        """Return those that began last, as channel and thread."""
        return await self._shelf.latest(number)

    async def has(self, channel: str, thread: str) -> bool:
        """Tell whether we take part in one."""
        if not thread:
            return False
        if (channel, thread) not in self._known and await self._shelf.has(channel, thread):
            self._remember(channel, thread)
        return (channel, thread) in self._known

    def _remember(self, channel: str, thread: str) -> None:
        self._known[channel, thread] = None
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
