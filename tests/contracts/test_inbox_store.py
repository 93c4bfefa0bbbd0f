"""Pending messages of a session."""

from datetime import timedelta

import pytest
from tests.contracts.session_leases import claim_session_lease

from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import Arrival, InboxItem, SessionClaim
from talaria.core.errors import LeaseLost
from talaria.core.ids import SessionId, new_turn_id
from talaria.testing.clock import NOON, SettableClock

MINUTE = timedelta(minutes=1)
ONE, TWO = SessionId("one"), SessionId("two")


def put(tx: Transaction, external_id: str, session: SessionId = ONE, priority: int = 0) -> InboxItem:
    """Add a message to the inbox and return it."""
    arrival = Arrival(
        session_id=session, source="telegram", external_id=external_id, payload=external_id, priority=priority
    )
    item = tx.inbox.add(arrival)
    assert item is not None
    return item


def claim_session(tx: Transaction) -> SessionClaim:
    claim = claim_session_lease(tx, MINUTE)
    assert claim is not None
    return claim


def test_new_message_is_waiting_in_the_inbox(mine: Transaction) -> None:
    item = put(mine, "1")
    assert (item.session_id, item.source, item.external_id, item.payload) == (ONE, "telegram", "1", "1")
    assert (item.kind, item.state, item.received_at, item.turn_id) == ("message", "waiting", NOON, None)
    assert mine.inbox.list_unsettled(ONE) == [item]


def test_redelivered_message_is_ignored_even_after_processing(mine: Transaction, theirs: Transaction) -> None:
    again = Arrival(session_id=ONE, source="telegram", external_id="1", payload="again")
    item = put(mine, "1")
    assert theirs.inbox.add(again) is None
    mine.inbox.settle([item.id])
    assert mine.inbox.add(again) is None
    assert mine.inbox.list_unsettled(ONE) == []


def test_same_id_from_another_source_is_a_different_message(mine: Transaction) -> None:
    put(mine, "1")
    assert mine.inbox.add(Arrival(session_id=ONE, source="discord", external_id="1", payload="")) is not None


def test_messages_are_taken_by_priority_then_by_arrival(mine: Transaction) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)):
        put(mine, name, priority=priority)
    assert [item.payload for item in mine.inbox.list_unsettled(ONE)] == ["b", "d", "a", "c", "e"]
    claim = claim_session(mine)
    turn = new_turn_id()
    assert [item.payload for item in mine.inbox.take(claim, turn)] == ["b"]
    assert [item.payload for item in mine.inbox.take(claim, turn, count=2)] == ["d", "a"]
    assert [item.payload for item in mine.inbox.take(claim, turn, count=9)] == ["c", "e"]
    assert mine.inbox.take(claim, turn) == []


def test_many_messages_of_a_leased_session_do_not_hide_another_session(mine: Transaction, theirs: Transaction) -> None:
    for number in range(50):
        put(mine, str(number), ONE)
    put(mine, "last", TWO)
    assert claim_session(mine).session_id == ONE
    assert theirs.inbox.list_unowned(1) == [TWO]


def test_unowned_sessions_are_listed_oldest_message_first(mine: Transaction, theirs: Transaction) -> None:
    for number, session_id in enumerate((TWO, ONE, TWO, ONE)):
        put(mine, str(number), session_id)
    assert mine.inbox.list_unowned(9) == [TWO, ONE]
    assert mine.inbox.list_unowned(1) == [TWO]
    assert claim_session(theirs).session_id == TWO
    assert mine.inbox.list_unowned(9) == [ONE]
    assert claim_session(mine).session_id == ONE
    assert mine.inbox.list_unowned(9) == []


def test_empty_inbox_lists_no_sessions(mine: Transaction) -> None:
    assert mine.inbox.list_unowned(9) == []


def test_session_without_waiting_messages_is_not_listed_but_can_be_claimed(mine: Transaction) -> None:
    item = put(mine, "1")
    mine.inbox.settle([item.id])
    assert mine.inbox.list_unowned(9) == []
    claim = claim_session_lease(mine, MINUTE, ONE)
    assert claim is not None
    assert mine.inbox.take(claim, new_turn_id()) == []


def test_session_can_be_claimed_again_after_its_lease_is_released_or_lapses(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    put(mine, "1")
    mine.leases.release(claim_session(mine).lease)
    claim_session(theirs)
    clock.advance(MINUTE)
    assert claim_session(mine).session_id == ONE


def test_taken_message_belongs_to_its_turn_and_is_not_taken_again(mine: Transaction) -> None:
    put(mine, "1")
    claim, turn = claim_session(mine), new_turn_id()
    [item] = mine.inbox.take(claim, turn)
    assert (item.state, item.turn_id) == ("taken", turn)
    assert mine.inbox.take(claim, new_turn_id()) == []
    assert mine.inbox.list_unsettled(ONE) == [item]


def test_only_messages_of_the_claimed_session_are_taken(mine: Transaction) -> None:
    put(mine, "1", ONE)
    put(mine, "2", TWO)
    assert [item.session_id for item in mine.inbox.take(claim_session(mine), new_turn_id(), count=9)] == [ONE]


def test_worker_with_a_superseded_claim_cannot_take_messages(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    put(mine, "1")
    lost = claim_session(mine)
    clock.advance(MINUTE)
    current = claim_session(theirs)
    with pytest.raises(LeaseLost):
        mine.inbox.take(lost, new_turn_id())
    assert len(theirs.inbox.take(current, new_turn_id())) == 1


def test_messages_of_a_dead_turn_return_to_their_old_position(mine: Transaction) -> None:
    for name in "abc":
        put(mine, name)
    claim, dead = claim_session(mine), new_turn_id()
    first, second = mine.inbox.take(claim, dead, count=2)
    mine.inbox.settle([second.id])
    assert mine.inbox.put_back(dead) == 1
    assert mine.inbox.put_back(dead) == 0
    [again] = mine.inbox.take(claim, new_turn_id())
    assert again.id == first.id


def test_settled_messages_leave_the_inbox(mine: Transaction) -> None:
    items = [put(mine, name) for name in "abc"]
    mine.inbox.settle([items[0].id, items[2].id])
    mine.inbox.settle([])
    assert mine.inbox.list_unsettled(ONE) == [items[1]]
