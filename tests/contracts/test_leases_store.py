"""Which worker owns something for a while."""

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


def taken(tx: Transaction, name: str = "lane") -> Lease:
    lease = tx.leases.acquire(name, MINUTE)
    assert lease is not None
    return lease


def test_what_is_free_can_be_taken(mine: Transaction) -> None:
    lease = taken(mine)
    assert lease == Lease("lane", WorkerId("worker-1"), 1, NOON + MINUTE)
    assert mine.leases.get("lane") == lease
    assert mine.leases.get("other") is None


def test_what_is_held_cannot_be_taken_even_by_its_holder(mine: Transaction, theirs: Transaction) -> None:
    taken(mine)
    assert theirs.leases.acquire("lane", MINUTE) is None
    assert mine.leases.acquire("lane", MINUTE) is None


def test_what_has_lapsed_can_be_taken_over_with_a_higher_token(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    first = taken(mine)
    clock.advance(MINUTE)
    assert mine.leases.get("lane") is None
    second = taken(theirs)
    assert (second.owner, second.token > first.token) == ("worker-2", True)


def test_a_token_grows_with_each_change_of_hands(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    tokens = []
    for tx in (mine, theirs, mine, mine):
        tokens.append(taken(tx).token)
        clock.advance(MINUTE)
    lease = taken(theirs)
    theirs.leases.release(lease)
    tokens += [lease.token, taken(mine).token]
    assert tokens == sorted(set(tokens))


def test_a_renewed_lease_holds_for_longer(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    lease = taken(mine)
    clock.advance(MINUTE / 2)
    renewed = mine.leases.renew(lease, MINUTE)
    assert (renewed.token, renewed.expires_at) == (lease.token, NOON + 1.5 * MINUTE)
    clock.advance(MINUTE / 2)
    assert theirs.leases.acquire("lane", MINUTE) is None
    mine.leases.check(lease)


def test_a_former_owner_is_fenced_out(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    lost = taken(mine)
    clock.advance(MINUTE)
    held = taken(theirs)
    with pytest.raises(LeaseLost):
        mine.leases.check(lost)
    with pytest.raises(LeaseLost):
        mine.leases.renew(lost, MINUTE)
    mine.leases.release(lost)
    assert mine.leases.get("lane") == held
    theirs.leases.check(held)


def test_a_worker_that_lost_a_lease_and_got_it_again_cannot_use_the_old_one(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    old = taken(mine)
    clock.advance(MINUTE)
    theirs.leases.release(taken(theirs))
    taken(mine)
    with pytest.raises(LeaseLost):
        mine.leases.check(old)


def test_a_released_lease_is_free_and_no_longer_in_force(mine: Transaction, theirs: Transaction) -> None:
    lease = taken(mine)
    mine.leases.release(lease)
    assert mine.leases.get("lane") is None
    with pytest.raises(LeaseLost):
        mine.leases.check(lease)
    taken(theirs)


def test_nothing_is_kept_of_a_transaction_whose_lease_is_lost(
    database: Database, mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    lost = taken(mine)
    clock.advance(MINUTE)
    taken(theirs)

    def step(tx: Transaction) -> None:
        tx.named_values.put("test", "reply", "too late")
        tx.leases.check(lost)

    with pytest.raises(LeaseLost):
        database.write(step)
    assert mine.named_values.get("test", "reply") is None


def test_a_checked_lease_cannot_be_taken_over_before_the_transaction_ends(
    database: Database, other: Database, clock: SettableClock
) -> None:
    lease = database.write(taken)
    clock.advance(MINUTE)
    checked, asking, got = threading.Event(), threading.Event(), threading.Event()

    def step(tx: Transaction) -> bool:
        tx.leases.check(lease)
        checked.set()
        asking.wait()
        return got.wait(0.3)

    def take_over() -> Lease | None:
        checked.wait()
        asking.set()
        lease = other.write(lambda tx: tx.leases.acquire("lane", MINUTE))
        got.set()
        return lease

    with ThreadPoolExecutor() as pool:
        later = pool.submit(take_over)
        assert not pool.submit(database.write, step).result()
        assert later.result() is not None


def test_a_lease_is_taken_from_a_dead_owner_once(mine: Transaction, theirs: Transaction) -> None:
    held = mine.leases.acquire("session:1", timedelta(minutes=1))
    assert held is not None
    taken = theirs.leases.take_over(held, timedelta(minutes=1))
    assert taken is not None
    assert taken.token > held.token
    assert mine.leases.take_over(held, timedelta(minutes=1)) is None
    with pytest.raises(LeaseLost):
        mine.leases.check(held)
