"""Spending caps that apply to all processes on the store."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.ledger import Cap, Hold

_HOLD_LIFETIME = timedelta(minutes=30)
CapSource = Callable[[Transaction], Sequence[Cap]]


class StoredBudget:
    """Implementation of `Budget` with the ledger of the store; ``caps`` is fixed or read for each call."""

    def __init__(self, store: Store, caps: Sequence[Cap] | CapSource) -> None:
        self._store = store
        self._caps: CapSource = caps if callable(caps) else lambda tx: caps

    async def reserve(self, amount: int) -> Hold | None:
        """Reserve an amount on every account, or raise `OverBudget`; without caps, write nothing."""
        if not await self._store.read(self._caps):
            return None
        return await self._store.write(lambda tx: self._reserve(tx, amount))

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Replace a hold with the amount that was spent."""
        if hold is not None:
            await self._store.write(lambda tx: tx.ledger.settle(hold, spent))

    def _reserve(self, tx: Transaction, amount: int) -> Hold | None:
        caps = self._caps(tx)
        return tx.ledger.reserve(caps, amount, _HOLD_LIFETIME) if caps else None
