"""Leases: temporary ownership by one worker, with a fencing token."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.turns import Lease
from talaria.core.errors import LeaseLost
from talaria.core.ids import WorkerId
from talaria.testing.clock import NOON, SettableClock

MINUTE = timedelta(minutes=1)


def acquire(tx: Transaction, name: str = "lane") -> Lease:
    lease = tx.leases.acquire(name, MINUTE)
    assert lease is not None
    return lease


def test_free_lease_can_be_acquired(mine: Transaction) -> None:
    lease = acquire(mine)
    assert lease == Lease("lane", WorkerId("worker-1"), 1, NOON + MINUTE)
    assert mine.leases.get("lane") == lease
    assert mine.leases.get("other") is None


def test_active_lease_cannot_be_acquired_even_by_its_owner(mine: Transaction, theirs: Transaction) -> None:
    acquire(mine)
    assert theirs.leases.acquire("lane", MINUTE) is None
    assert mine.leases.acquire("lane", MINUTE) is None


def test_expired_lease_is_acquired_by_another_worker_with_a_higher_token(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    first = acquire(mine)
    clock.advance(MINUTE)
    assert mine.leases.get("lane") is None
    second = acquire(theirs)
    assert (second.owner, second.token > first.token) == ("worker-2", True)


def test_lease_token_grows_with_each_acquisition(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    tokens = []
    for tx in (mine, theirs, mine, mine):
        tokens.append(acquire(tx).token)
        clock.advance(MINUTE)
    lease = acquire(theirs)
    theirs.leases.release(lease)
    tokens += [lease.token, acquire(mine).token]
    assert tokens == sorted(set(tokens))


def test_renewed_lease_expires_later(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    lease = acquire(mine)
    clock.advance(MINUTE / 2)
    renewed = mine.leases.renew(lease, MINUTE)
    assert (renewed.token, renewed.expires_at) == (lease.token, NOON + 1.5 * MINUTE)
    clock.advance(MINUTE / 2)
    assert theirs.leases.acquire("lane", MINUTE) is None
    mine.leases.check(lease)


def test_a_former_owner_is_fenced_out(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    lost = acquire(mine)
    clock.advance(MINUTE)
    current = acquire(theirs)
    with pytest.raises(LeaseLost):
        mine.leases.check(lost)
    with pytest.raises(LeaseLost):
        mine.leases.renew(lost, MINUTE)
    mine.leases.release(lost)
    assert mine.leases.get("lane") == current
    theirs.leases.check(current)


def test_worker_that_reacquired_a_lease_cannot_use_its_old_token(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    old = acquire(mine)
    clock.advance(MINUTE)
    theirs.leases.release(acquire(theirs))
    acquire(mine)
    with pytest.raises(LeaseLost):
        mine.leases.check(old)


def test_released_lease_is_free_and_no_longer_valid(mine: Transaction, theirs: Transaction) -> None:
    lease = acquire(mine)
    mine.leases.release(lease)
    assert mine.leases.get("lane") is None
    with pytest.raises(LeaseLost):
        mine.leases.check(lease)
    acquire(theirs)


def test_transaction_with_a_lost_lease_is_rolled_back(
    database: Database, mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    lost = acquire(mine)
    clock.advance(MINUTE)
    acquire(theirs)

    def step(tx: Transaction) -> None:
        tx.named_values.put("test", "reply", "too late")
        tx.leases.check(lost)

    with pytest.raises(LeaseLost):
        database.write(step)
    assert mine.named_values.get("test", "reply") is None


def test_checked_lease_cannot_be_acquired_before_the_transaction_ends(
    database: Database, other: Database, clock: SettableClock
) -> None:
    lease = database.write(acquire)
    clock.advance(MINUTE)
    checked, acquiring, acquired = threading.Event(), threading.Event(), threading.Event()

    def step(tx: Transaction) -> bool:
        tx.leases.check(lease)
        checked.set()
        acquiring.wait()
        return acquired.wait(0.3)

    def take_over() -> Lease | None:
        checked.wait()
        acquiring.set()
        lease = other.write(lambda tx: tx.leases.acquire("lane", MINUTE))
        acquired.set()
        return lease

    with ThreadPoolExecutor() as pool:
        later = pool.submit(take_over)
        assert not pool.submit(database.write, step).result()
        assert later.result() is not None


def test_lease_of_a_dead_owner_is_taken_over_once(mine: Transaction, theirs: Transaction) -> None:
    first = mine.leases.acquire("session:1", timedelta(minutes=1))
    assert first is not None
    second = theirs.leases.take_over(first, timedelta(minutes=1))
    assert second is not None
    assert second.token > first.token
    assert mine.leases.take_over(first, timedelta(minutes=1)) is None
    with pytest.raises(LeaseLost):
        mine.leases.check(first)
