"""The store for asyncio: what its threads find waiting they commit together."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from talaria.contracts.store import Transaction
from talaria.storage.crew import Crew, Orders
from talaria.storage.database import ConnectionDatabase, Outcome, Work

T = TypeVar("T")
_COMMITTED_AT_ONCE = 256


class ThreadedStore:
    """Implements `Store`."""

    def __init__(
        self,
        open_database: Callable[[], ConnectionDatabase],
        *,
        writers: int,
        readers: int,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._writers = Crew(
            "store-writer", writers, open_database, Orders(_write, at_once=_COMMITTED_AT_ONCE, upkeep=True)
        )
        self._readers = Crew("store-reader", readers, open_database, Orders(_read))
        self._closing = closing

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
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.finish()
        self._writers.finish()
        self._closing()


def _write(database: ConnectionDatabase, works: list[Work]) -> list[Outcome]:
    return database.write_all(works)


def _read(database: ConnectionDatabase, works: list[Work]) -> list[Outcome]:
    return [Outcome(database.read(work)) for work in works]
