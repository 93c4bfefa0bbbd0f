"""Caps on spending that hold for every process on the store."""

from collections.abc import Sequence
from datetime import timedelta

from talaria.contracts.store import Store
from talaria.contracts.stores.ledger import Cap, Hold

_LIFE = timedelta(minutes=30)


class StoredBudget:
    """Implements `Budget` by the ledger of the store."""

    def __init__(self, store: Store, caps: Sequence[Cap]) -> None:
        self._store = store
        self._caps = tuple(caps)

    async def reserve(self, amount: int) -> Hold | None:
        """Set an amount aside on every account, or raise `OverBudget`."""
        return await self._store.write(lambda tx: tx.ledger.reserve(self._caps, amount, _LIFE))

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Put what was really spent in the place of a hold."""
        if hold is not None:
            await self._store.write(lambda tx: tx.ledger.settle(hold, spent))
