"""The store for asyncio: what its threads find waiting they commit together."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from talaria.contracts.store import Transaction
from talaria.storage.crew import Crew, Orders
from talaria.storage.database import ConnectionDatabase, Outcome, Work

if TYPE_CHECKING:  # loaded with the first hint
    from talaria.storage.hints import Hints

T = TypeVar("T")
_COMMITTED_AT_ONCE = 256
_READ_AT_ONCE = 16  # few, as they wait for the longest of them


class ThreadedStore:
    """Implements `Store`; where every commit is a hint to other processes, nothing of ours ``carries`` hints there."""

    def __init__(
        self,
        open_database: Callable[[], ConnectionDatabase],
        *,
        writers: int,
        readers: int,
        open_hints: "Callable[[], Hints]",
        carries_hints: bool = True,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._writers = Crew(
            "store-writer", writers, open_database, Orders(_write, at_once=_COMMITTED_AT_ONCE, upkeep=True)
        )
        self._readers = Crew("store-reader", readers, open_database, Orders(_read, at_once=_READ_AT_ONCE))
        self._open_hints = open_hints
        self._carries_hints = carries_hints
        self._closing = closing
        self._hints: Hints | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one unchanging view of the store."""
        result: T = await self._readers.hand_over(work)
        return result

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and return when it is durable."""
        result: T = await self._writers.hand_over(work)
        return result

    async def close(self) -> None:
        """Finish what was handed over and let go of the store."""
        with self._lock:
            self._closed = True
        self._readers.end()
        self._writers.end()
        await asyncio.to_thread(self._close)

    async def hint(self, topic: str) -> None:
        """Tell whoever heeds a topic, in this process or another, that a look is worth it."""
        if self._carries_hints or self._hints is not None:
            self._opened_hints().hint(topic)

    def heeding(self, topic: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Give an event that is set at each hint, and now and then without one."""
        return self._opened_hints().heeding(topic)

    def _opened_hints(self) -> "Hints":
        with self._lock:
            if self._hints is None:
                self._hints = self._open_hints()
                if self._closed:
                    self._hints.close()
            return self._hints

    def _close(self) -> None:
        self._readers.finish()
        self._writers.finish()
        with self._lock:
            hints = self._hints
        if hints is not None:
            hints.close()
        self._closing()


def _write(database: ConnectionDatabase, works: list[Work]) -> list[Outcome]:
    return database.write_all(works)


def _read(database: ConnectionDatabase, works: list[Work]) -> list[Outcome]:
    return database.read_all(works)
