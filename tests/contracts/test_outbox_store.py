"""Replies on their way."""

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

from tests.storage.engines import one_by_one

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


def claimed(tx: Transaction, platform: str = "telegram", count: int = 16) -> list[str]:
    """Claim what is due and return the keys."""
    return [item.key for item in tx.outbox.claim(platform, MINUTE, count)]


def test_a_delivery_waits_with_the_destination_it_was_given(mine: Transaction) -> None:
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


def test_a_key_is_queued_once_even_after_it_was_sent(mine: Transaction, theirs: Transaction) -> None:
    queue(mine, "a")
    again = Outgoing(key="a", session_id=TWO, address=THERE, payload="b")
    assert theirs.outbox.add(again) is None
    [item] = mine.outbox.claim("telegram", MINUTE)
    mine.outbox.sent(item.id, "7")
    assert mine.outbox.add(again) is None


def test_what_is_claimed_is_being_sent_by_one_worker(mine: Transaction, theirs: Transaction) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert (item.state, item.attempts, item.doubtful) == ("sending", 1, False)
    assert claimed(theirs) == claimed(mine) == []
    assert mine.outbox.find() == [item]


def test_only_the_platform_that_asks_is_served(mine: Transaction) -> None:
    queue(mine, "a", Address("discord", "1"))
    assert claimed(mine, "telegram") == []
    assert claimed(mine, "discord") == ["a"]


def test_an_item_goes_out_when_those_before_it_at_its_address_have(mine: Transaction) -> None:
    for key, address in (("a", HERE), ("b", HERE), ("c", THERE), ("d", THERE)):
        queue(mine, key, address)
    first, second = mine.outbox.claim("telegram", MINUTE)
    assert (first.key, second.key) == ("a", "c")
    assert claimed(mine) == []
    mine.outbox.sent(second.id, "1")
    assert claimed(mine) == ["d"]
    mine.outbox.sent(first.id, "2")
    assert claimed(mine) == ["b"]


def test_no_more_is_claimed_than_asked_for(mine: Transaction) -> None:
    for number in range(5):
        queue(mine, str(number), Address("telegram", str(number)))
    assert claimed(mine, count=2) == ["0", "1"]
    assert claimed(mine) == ["2", "3", "4"]


def test_what_was_sent_is_delivered(mine: Transaction) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert mine.outbox.sent(item.id, "ref")
    assert not mine.outbox.sent(item.id, "ref")
    assert mine.outbox.find() == []


def test_what_must_wait_comes_again_at_its_time_and_holds_up_its_address(
    mine: Transaction, clock: SettableClock
) -> None:
    queue(mine, "a")
    queue(mine, "b")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert mine.outbox.retry(item.id, NOON + 2 * MINUTE, "slow down")
    assert claimed(mine) == []
    clock.advance(2 * MINUTE)
    [again] = mine.outbox.claim("telegram", MINUTE)
    assert (again.key, again.attempts, again.doubtful, again.error) == ("a", 2, False, "slow down")


def test_what_is_given_up_stays_on_record_and_lets_the_next_go(mine: Transaction, clock: SettableClock) -> None:
    queue(mine, "a")
    queue(mine, "b")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert mine.outbox.fail(item.id, "blocked by the user")
    assert claimed(mine) == ["b"]
    clock.advance(2 * MINUTE)
    assert [(one.key, one.state, one.error) for one in mine.outbox.find()] == [
        ("a", "failed", "blocked by the user"),
        ("b", "sending", ""),
    ]
    assert claimed(mine) == ["b"]


def test_an_item_whose_sender_died_comes_again_and_is_doubtful(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    queue(mine, "a")
    claimed(mine)
    clock.advance(MINUTE)
    [item] = theirs.outbox.claim("telegram", MINUTE)
    assert (item.key, item.doubtful, item.attempts) == ("a", True, 2)


def test_an_item_whose_sender_is_surely_dead_comes_again_at_once(
    open_database: Callable[[str], Database], mine: Transaction
) -> None:
    say_worker = "from talaria.core.ids import new_worker_id; print(new_worker_id())"
    dead = subprocess.run([sys.executable, "-c", say_worker], capture_output=True, text=True, check=True).stdout.strip()
    queue(mine, "a")
    queue(mine, "b", THERE)
    assert claimed(one_by_one(open_database(dead)), count=1) == ["a"]
    found = mine.outbox.claim("telegram", MINUTE)
    assert [(item.key, item.doubtful) for item in found] == [("a", True), ("b", False)]


def test_a_worker_cannot_settle_what_another_has_taken_over(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    item = queue(mine, "a")
    claimed(mine)
    clock.advance(MINUTE)
    claimed(theirs)
    assert not mine.outbox.sent(item.id, "1")
    assert not mine.outbox.retry(item.id, NOON, "again")
    assert not mine.outbox.fail(item.id, "no")
    assert theirs.outbox.sent(item.id, "2")


def test_nobody_can_settle_what_nobody_sends(mine: Transaction) -> None:
    item = queue(mine, "a")
    assert not mine.outbox.sent(item.id, "1")
    assert not mine.outbox.fail(item.id, "no")
    assert [one.state for one in mine.outbox.find()] == ["waiting"]


def test_a_slow_sender_that_nobody_replaced_may_still_report(mine: Transaction, clock: SettableClock) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    clock.advance(5 * MINUTE)
    assert mine.outbox.sent(item.id, "1")


def test_what_is_undelivered_is_listed_oldest_first_for_all_or_for_one_session(mine: Transaction) -> None:
    for key, session in (("b", ONE), ("a", TWO), ("c", ONE)):
        queue(mine, key, session=session)
    assert [item.key for item in mine.outbox.find()] == ["b", "a", "c"]
    assert [item.key for item in mine.outbox.find(OutboxFilter(session_id=ONE))] == ["b", "c"]


def test_what_is_still_to_go_out_to_a_network_is_found_for_it_alone(mine: Transaction) -> None:
    for key in ("a", "b", "c"):
        queue(mine, key)
    for key in ("a", "b"):
        [item] = mine.outbox.claim("telegram", MINUTE)
        assert item.key == key
        mine.outbox.fail(item.id, "no") if key == "a" else mine.outbox.sent(item.id, "1")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert [item.key for item in mine.outbox.find(OutboxFilter(platform="telegram"))] == ["c"]
    assert mine.outbox.find(OutboxFilter(platform="matrix")) == []
    queue(mine, "d")
    assert [item.key for item in mine.outbox.find(OutboxFilter(platform="telegram", limit=1))] == ["c"]


def test_what_is_out_is_found_when_asked_for(mine: Transaction) -> None:
    queue(mine, "a")
    queue(mine, "b", session=TWO)
    for _ in range(2):
        [item] = mine.outbox.claim("telegram", MINUTE)
        mine.outbox.sent(item.id, f"id of {item.key}")
    assert mine.outbox.find() == []
    assert [item.key for item in mine.outbox.find(OutboxFilter(sent=True))] == ["a", "b"]
    [one] = mine.outbox.find(OutboxFilter(key="b", sent=True))
    assert one.reference == "id of b"


def test_an_undelivered_item_is_due_again_on_request(mine: Transaction, theirs: Transaction) -> None:
    queue(mine, "a")
    [item] = mine.outbox.claim("telegram", MINUTE)
    assert theirs.outbox.requeue(item.id) is None
    mine.outbox.fail(item.id, "the chat was deleted")
    again = theirs.outbox.requeue(item.id)
    assert again is not None
    assert (again.state, again.attempts, again.error) == ("waiting", 0, "the chat was deleted")
    assert claimed(mine) == ["a"]


def test_an_item_that_is_not_being_sent_is_dropped_on_request(mine: Transaction) -> None:
    waiting, sent = queue(mine, "a"), queue(mine, "b", THERE)
    mine.outbox.claim("telegram", MINUTE)
    assert not mine.outbox.drop(waiting.id)
    mine.outbox.retry(waiting.id, NOON, "later")
    mine.outbox.sent(sent.id, "7")
    assert mine.outbox.drop(waiting.id)
    assert not mine.outbox.drop(sent.id)
    assert mine.outbox.find() == []
