"""Stored results of background work."""

from datetime import timedelta

import pytest

from talaria.contracts.store import Database, Transaction
from talaria.core.ids import SessionId
from talaria.testing.clock import NOON, SettableClock

ONE, TWO = SessionId("one"), SessionId("two")


def test_completions_are_pending_in_the_order_they_were_added(mine: Transaction) -> None:
    for number in ("1", "2", "3"):
        assert mine.completions.add(ONE, "process", number, f"exit {number}")
    completions = mine.completions.take(ONE)
    assert [(one.source, one.external_id, one.payload, one.created_at) for one in completions] == [
        ("process", "1", "exit 1", NOON),
        ("process", "2", "exit 2", NOON),
        ("process", "3", "exit 3", NOON),
    ]


def test_duplicate_completion_is_ignored_even_after_delivery(mine: Transaction, theirs: Transaction) -> None:
    assert mine.completions.add(ONE, "process", "1", "")
    assert not theirs.completions.add(ONE, "process", "1", "")
    mine.completions.take(ONE)
    assert not mine.completions.add(ONE, "process", "1", "")
    assert mine.completions.add(ONE, "task", "1", "")


def test_completion_is_delivered_once(mine: Transaction, theirs: Transaction) -> None:
    mine.completions.add(ONE, "process", "1", "")
    mine.completions.add(TWO, "process", "2", "")
    assert [one.session_id for one in theirs.completions.take(ONE)] == [ONE]
    assert mine.completions.take(ONE) == []


def test_an_undelivered_completion_stays_pending(database: Database, mine: Transaction) -> None:
    mine.completions.add(ONE, "process", "1", "")

    def take_and_fail(tx: Transaction) -> None:
        assert tx.completions.take(ONE)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        database.write(take_and_fail)
    assert len(mine.completions.take(ONE)) == 1


def test_session_with_the_oldest_completion_is_listed_first(mine: Transaction, clock: SettableClock) -> None:
    for session, number in ((TWO, "1"), (ONE, "2"), (TWO, "3")):
        mine.completions.add(session, "process", number, "")
        clock.advance(timedelta(seconds=1))
    assert mine.completions.waiting() == [TWO, ONE]
    mine.completions.take(TWO)
    assert mine.completions.waiting() == [ONE]
