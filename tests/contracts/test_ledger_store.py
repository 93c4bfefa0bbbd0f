"""Ledger: cost is reserved before a call, on every account with a cap."""

import asyncio
from datetime import timedelta

import pytest

from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import Cap
from talaria.core.errors import OverBudget
from talaria.storage.async_store import ThreadedStore
from talaria.testing.clock import SettableClock

LIFE = timedelta(minutes=5)


def test_settled_cost_counts_on_every_account(mine: Transaction) -> None:
    hold = mine.ledger.reserve([Cap("all", 100), Cap("person:7", 50)], 40, LIFE)
    mine.ledger.settle(hold, 25)
    assert (mine.ledger.read_spent("all"), mine.ledger.read_spent("person:7")) == (25, 25)


def test_reserved_amount_cannot_be_reserved_again(mine: Transaction, theirs: Transaction) -> None:
    mine.ledger.reserve([Cap("all", 100)], 70, LIFE)
    with pytest.raises(OverBudget) as over:
        theirs.ledger.reserve([Cap("all", 100)], 40, LIFE)
    assert over.value.account == "all"
    assert theirs.ledger.reserve([Cap("all", 100)], 30, LIFE).amount == 30


def test_reservation_is_refused_if_any_account_exceeds_its_cap(mine: Transaction) -> None:
    with pytest.raises(OverBudget) as over:
        mine.ledger.reserve([Cap("all", 100), Cap("session:1", 5)], 10, LIFE)
    assert over.value.account == "session:1"
    assert mine.ledger.reserve([Cap("all", 100)], 100, LIFE).amount == 100


def test_unsettled_reservation_lapses(mine: Transaction, clock: SettableClock) -> None:
    mine.ledger.reserve([Cap("all", 100)], 100, LIFE)
    clock.advance(LIFE)
    assert mine.ledger.reserve([Cap("all", 100)], 100, LIFE).amount == 100


def test_lapsed_reservation_can_still_be_settled(mine: Transaction, clock: SettableClock) -> None:
    hold = mine.ledger.reserve([Cap("all", 100)], 60, LIFE)
    clock.advance(LIFE)
    mine.ledger.settle(hold, 60)
    assert mine.ledger.read_spent("all") == 60


async def test_64_concurrent_calls_never_exceed_a_cap(store: ThreadedStore) -> None:
    caps = [Cap("all", 1000), Cap("session:1", 500)]

    async def call() -> int:
        try:
            hold = await store.write(lambda tx: tx.ledger.reserve(caps, 30, LIFE))
        except OverBudget:
            return 0
        await store.write(lambda tx: tx.ledger.settle(hold, 30))
        return 30

    spent = sum(await asyncio.gather(*(call() for _ in range(64))))
    assert spent == await store.read(lambda tx: tx.ledger.read_spent("session:1")) == 480
