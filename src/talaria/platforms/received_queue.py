"""A durable queue of received messages, for networks that deliver each message once and have no history."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from talaria.contracts.store import Store, Transaction
from talaria.contracts.values import NamedValue
from talaria.core.errors import StoreError

T = TypeVar("T")
_STORE_PAUSE = 1.0

log = logging.getLogger(__name__)


class ReceivedQueue(Generic[T]):
    """Messages of one account, in the order of their arrival; each stays until it is removed.

    Every process of a profile can add to it. The key of a message is unique and stays the same after a crash, so it can
    be the ``external_id`` of an update.
    """

    def __init__(self, store: Store, value: NamedValue[T], account: str) -> None:
        self._store = store
        self._value = value
        self._prefix = f"{account}:"
        self._topic = f"received:{account}"
        self._last = 0

    async def add(self, messages: Sequence[T]) -> None:
        """Store messages durably, waiting for the store as long as needed."""
        keyed = [(self._make_key(), message) for message in messages]

        def write(tx: Transaction) -> None:
            for key, message in keyed:
                self._value.write(tx, key, message)
            tx.notify(self._topic)

        while True:
            try:
                await self._store.write(write)
            except StoreError as error:
                log.warning("%s received messages are waiting for the store: %s", len(keyed), error)
                await asyncio.sleep(_STORE_PAUSE)
            else:
                return

    async def pending(self) -> list[tuple[str, T]]:
        """Wait for messages, and return all of them with their keys, oldest first."""
        async with self._store.subscribe(self._topic) as changes:
            while not (found := await self._store.read(lambda tx: self._value.items(tx, self._prefix))):
                await changes.wait()
        return list(found.items())

    async def remove(self, key: str) -> None:
        """Remove a message that was processed."""
        await self._store.write(lambda tx: self._value.delete(tx, key))

    def _make_key(self) -> str:
        self._last = max(self._last + 1, time.time_ns())
        return f"{self._prefix}{self._last:020}"
