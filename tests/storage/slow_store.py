"""A store whose first write has been committed, but does not return yet."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from talaria.contracts.store import Store, Subscription, Transaction

T = TypeVar("T")


class SlowStore:
    """A store whose first write returns only after ``resumed`` is set; it has ``committed`` before."""

    def __init__(self, inner: Store) -> None:
        self.committed = asyncio.Event()
        self.resumed = asyncio.Event()
        self._inner = inner

    async def write(self, work: Callable[[Transaction], T]) -> T:
        result = await self._inner.write(work)
        self.committed.set()
        await self.resumed.wait()
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        raise AssertionError("the store belongs to the test")

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        return self._inner.subscribe(*topics)
