"""Outbox: replies that wait to be sent."""

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

from tests.storage.engines import transaction_per_call

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.queues import OutboxFilter, OutboxItem, Outgoing
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, TurnId
from talaria.testing.clock import NOON, SettableClock

MINUTE = timedelta(minutes=1)
ONE, TWO = SessionId("one"), SessionId("two")
HERE = Address("telegram", "1")
THERE = Address("telegram", "1", thread_id="2")


def queue(tx: Transaction, key: str, address: Address = HERE, session: SessionId = ONE) -> OutboxItem:
    """Queue a delivery and return it."""
    item = tx.outbox.add(Outgoing(key=key, session_id=session, address=address, payload=key, turn_id=TurnId("t")))
    assert item is not None
    return item


def claim_keys(tx: Transaction, platform: str = "telegram", count: int = 16) -> list[str]:
    """Claim due items and return their keys."""
    return [item.key for item in tx.outbox.claim(platform, MINUTE, count)]


def test_queued_item_is_waiting_with_its_address(mine: Transaction) -> None:
    item = queue(mine, "a", THERE)
    assert item == OutboxItem(
        id=item.id,
        key="a",
        session_id=ONE,
        address=THERE,
        payload="a",
        turn_id=TurnId("t"),
        state="waiting",
        attempts=0,
        created_at=NOON,
    )
    assert mine.outbox.find() == [item]


def test_duplicate_key_is_ignored_even_after_it_was_sent(mine: Transaction, theirs: Transaction) -> None:
    queue(mine, "a")
    again = Outgoing(key="a", session_id=TWO, address=THERE, payload="b")
    assert theirs.outbox.add(again) is None
    [item] = mine.outbox.claim("telegram", MINUTE)
    mine.outbox.mark_sent(item.id, "7")
    assert mine.outbox.add(again) is None


def test_item_is_claimed_by_one_worker(mine: Transaction, theirs: Transaction) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert (item.state, item.attempts, item.doubtful) == ("sending", 1, False)
    assert claim_keys(theirs) == claim_keys(mine) == []
    assert mine.outbox.find() == [item]


def test_only_items_of_the_claiming_platform_are_claimed(mine: Transaction) -> None:
    queue(mine, "a", Address("discord", "1"))
    assert claim_keys(mine, "telegram") == []
    assert claim_keys(mine, "discord") == ["a"]


def test_item_is_claimed_after_earlier_items_of_its_address_were_sent(mine: Transaction) -> None:
    for key, address in (("a", HERE), ("b", HERE), ("c", THERE), ("d", THERE)):
        queue(mine, key, address)
    first, second = mine.outbox.claim("telegram", MINUTE)
    assert (first.key, second.key) == ("a", "c")
    assert claim_keys(mine) == []
    mine.outbox.mark_sent(second.id, "1")
    assert claim_keys(mine) == ["d"]
    mine.outbox.mark_sent(first.id, "2")
    assert claim_keys(mine) == ["b"]


def test_claim_returns_at_most_the_requested_count(mine: Transaction) -> None:
    for number in range(5):
        queue(mine, str(number), Address("telegram", str(number)))
    assert claim_keys(mine, count=2) == ["0", "1"]
    assert claim_keys(mine) == ["2", "3", "4"]


def test_sent_item_leaves_the_outbox(mine: Transaction) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert mine.outbox.mark_sent(item.id, "ref")
    assert not mine.outbox.mark_sent(item.id, "ref")
    assert mine.outbox.find() == []


def test_retried_item_blocks_its_address_until_it_is_due(mine: Transaction, clock: SettableClock) -> None:
    queue(mine, "a")
    queue(mine, "b")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert mine.outbox.retry(item.id, NOON + 2 * MINUTE, "slow down")
    assert claim_keys(mine) == []
    clock.advance(2 * MINUTE)
    [again] = mine.outbox.claim("telegram", MINUTE)
    assert (again.key, again.attempts, again.doubtful, again.error) == ("a", 2, False, "slow down")


def test_failed_item_stays_listed_and_does_not_block_the_next(mine: Transaction, clock: SettableClock) -> None:
    queue(mine, "a")
    queue(mine, "b")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert mine.outbox.fail(item.id, "blocked by the user")
    assert claim_keys(mine) == ["b"]
    clock.advance(2 * MINUTE)
    assert [(one.key, one.state, one.error) for one in mine.outbox.find()] == [
        ("a", "failed", "blocked by the user"),
        ("b", "sending", ""),
    ]
    assert claim_keys(mine) == ["b"]


def test_item_of_an_expired_claim_is_claimed_again_as_doubtful(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    queue(mine, "a")
    claim_keys(mine)
    clock.advance(MINUTE)
    [item] = theirs.outbox.claim("telegram", MINUTE)
    assert (item.key, item.doubtful, item.attempts) == ("a", True, 2)


def test_item_of_a_dead_process_is_claimed_again_at_once(
    open_database: Callable[[str], Database], mine: Transaction
) -> None:
    print_worker_id = "from talaria.core.ids import new_worker_id; print(new_worker_id())"
    dead = subprocess.run(
        [sys.executable, "-c", print_worker_id], capture_output=True, text=True, check=True
    ).stdout.strip()
    queue(mine, "a")
    queue(mine, "b", THERE)
    assert claim_keys(transaction_per_call(open_database(dead)), count=1) == ["a"]
    found = mine.outbox.claim("telegram", MINUTE)
    assert [(item.key, item.doubtful) for item in found] == [("a", True), ("b", False)]


def test_worker_cannot_settle_an_item_that_another_worker_took_over(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    item = queue(mine, "a")
    claim_keys(mine)
    clock.advance(MINUTE)
    claim_keys(theirs)
    assert not mine.outbox.mark_sent(item.id, "1")
    assert not mine.outbox.retry(item.id, NOON, "again")
    assert not mine.outbox.fail(item.id, "no")
    assert theirs.outbox.mark_sent(item.id, "2")


def test_unclaimed_item_cannot_be_settled(mine: Transaction) -> None:
    item = queue(mine, "a")
    assert not mine.outbox.mark_sent(item.id, "1")
    assert not mine.outbox.fail(item.id, "no")
    assert [one.state for one in mine.outbox.find()] == ["waiting"]


def test_slow_worker_can_settle_its_item_if_it_was_not_taken_over(mine: Transaction, clock: SettableClock) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    clock.advance(5 * MINUTE)
    assert mine.outbox.mark_sent(item.id, "1")


def test_undelivered_items_are_listed_oldest_first_for_all_or_one_session(mine: Transaction) -> None:
    for key, session in (("b", ONE), ("a", TWO), ("c", ONE)):
        queue(mine, key, session=session)
    assert [item.key for item in mine.outbox.find()] == ["b", "a", "c"]
    assert [item.key for item in mine.outbox.find(OutboxFilter(session_id=ONE))] == ["b", "c"]


def test_pending_items_are_found_by_platform(mine: Transaction) -> None:
    for key in ("a", "b", "c"):
        queue(mine, key)
    for key in ("a", "b"):
        [item] = mine.outbox.claim("telegram", MINUTE)
        assert item.key == key
        mine.outbox.fail(item.id, "no") if key == "a" else mine.outbox.mark_sent(item.id, "1")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert [item.key for item in mine.outbox.find(OutboxFilter(platform="telegram"))] == ["c"]
    assert mine.outbox.find(OutboxFilter(platform="matrix")) == []
    queue(mine, "d")
    assert [item.key for item in mine.outbox.find(OutboxFilter(platform="telegram", limit=1))] == ["c"]


def test_sent_items_are_found_by_filter(mine: Transaction) -> None:
    queue(mine, "a")
    queue(mine, "b", session=TWO)
    for _ in range(2):
        [item] = mine.outbox.claim("telegram", MINUTE)
        mine.outbox.mark_sent(item.id, f"id of {item.key}")
    assert mine.outbox.find() == []
    assert [item.key for item in mine.outbox.find(OutboxFilter(sent=True))] == ["a", "b"]
    [one] = mine.outbox.find(OutboxFilter(key="b", sent=True))
    assert one.reference == "id of b"


def test_failed_item_can_be_requeued(mine: Transaction, theirs: Transaction) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert theirs.outbox.requeue(item.id) is None
    mine.outbox.fail(item.id, "the chat was deleted")
    again = theirs.outbox.requeue(item.id)
    assert again is not None
    assert (again.state, again.attempts, again.error) == ("waiting", 0, "the chat was deleted")
    assert claim_keys(mine) == ["a"]


def test_item_that_is_not_being_sent_can_be_dropped(mine: Transaction) -> None:
    waiting, sent = queue(mine, "a"), queue(mine, "b", THERE)
    mine.outbox.claim("telegram", MINUTE)
    assert not mine.outbox.drop(waiting.id)
    mine.outbox.retry(waiting.id, NOON, "later")
    mine.outbox.mark_sent(sent.id, "7")
    assert mine.outbox.drop(waiting.id)
    assert not mine.outbox.drop(sent.id)
    assert mine.outbox.find() == []
