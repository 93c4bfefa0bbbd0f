"""Caps on spending that hold for every process on the store."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.ledger import Cap, Hold

_LIFE = timedelta(minutes=30)
CapsNow = Callable[[Transaction], Sequence[Cap]]


class StoredBudget:
    """Implements `Budget` by the ledger of the store; ``caps`` is asked for each call anew, or fixed."""

    def __init__(self, store: Store, caps: Sequence[Cap] | CapsNow) -> None:
        self._store = store
        self._caps: CapsNow = caps if callable(caps) else lambda tx: caps

    async def reserve(self, amount: int) -> Hold | None:
        """Set an amount aside on every account, or raise `OverBudget`; where nothing is capped, nothing is written."""
        if not await self._store.read(self._caps):
            return None
        return await self._store.write(lambda tx: self._reserved(tx, amount))

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Put what was really spent in the place of a hold."""
        if hold is not None:
            await self._store.write(lambda tx: tx.ledger.settle(hold, spent))

    def _reserved(self, tx: Transaction, amount: int) -> Hold | None:
        caps = self._caps(tx)
        return tx.ledger.reserve(caps, amount, _LIFE) if caps else None
