"""Turns and their steps."""

from datetime import timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import Step, Turn
from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.testing.clock import NOON, SettableClock

MINUTE = timedelta(minutes=1)
ONE, TWO = SessionId("one"), SessionId("two")
A, B, C = TurnId("a"), TurnId("b"), TurnId("c")


def test_turn_is_listed_as_running_until_it_ends(mine: Transaction, clock: SettableClock) -> None:
    turn = mine.turns.begin(ONE, A)
    assert turn == Turn(id=A, session_id=ONE, worker=WorkerId("worker-1"), state="running", started_at=NOON)
    assert mine.turns.find(running=True) == [turn]
    clock.advance(MINUTE)
    assert mine.turns.end(A, "failed", "no answer")
    assert mine.turns.find(running=True) == []


def test_a_turn_ends_once(mine: Transaction, theirs: Transaction) -> None:
    mine.turns.begin(ONE, A)
    assert theirs.turns.end(A, "stopped")
    assert not mine.turns.end(A, "answered")
    assert not mine.turns.end(TurnId("nowhere"), "answered")


def test_running_turns_are_listed_oldest_first(mine: Transaction, theirs: Transaction, clock: SettableClock) -> None:
    for tx, session, turn in ((mine, ONE, C), (theirs, TWO, A), (mine, ONE, B)):
        tx.turns.begin(session, turn)
        clock.advance(MINUTE)
    assert [(turn.id, turn.worker) for turn in mine.turns.find(running=True)] == [
        (C, "worker-1"),
        (A, "worker-2"),
        (B, "worker-1"),
    ]
    assert [turn.id for turn in mine.turns.find(ONE, running=True)] == [C, B]


def test_turns_are_found_by_session_and_a_limit_returns_the_newest(mine: Transaction, clock: SettableClock) -> None:
    for session, turn in ((ONE, C), (TWO, TurnId("d")), (ONE, A), (ONE, B)):
        mine.turns.begin(session, turn)
        mine.turns.end(turn, "answered")
        clock.advance(MINUTE)
    assert [turn.id for turn in mine.turns.find()] == [C, "d", A, B]
    assert [turn.id for turn in mine.turns.find(ONE)] == [C, A, B]
    assert [turn.id for turn in mine.turns.find(ONE, limit=2)] == [A, B]
    assert mine.turns.find(ONE, running=True) == []
    assert mine.turns.find(SessionId("nowhere")) == []


def test_turns_with_the_same_start_time_are_ordered_by_id(mine: Transaction) -> None:
    for turn in (B, A, C):
        mine.turns.begin(ONE, turn)
    assert [turn.id for turn in mine.turns.find(ONE)] == [A, B, C]
    assert [turn.id for turn in mine.turns.find(ONE, limit=2)] == [B, C]


def test_steps_are_numbered_per_turn(mine: Transaction) -> None:
    mine.turns.begin(ONE, A)
    mine.turns.begin(ONE, B)
    numbers = [mine.turns.begin_step(turn, "tool", "read", "{}") for turn in (A, A, B, A)]
    assert numbers == [1, 2, 1, 3]
    assert [step.number for step in mine.turns.steps(A)] == [1, 2, 3]
    assert mine.turns.steps(TurnId("nowhere")) == []


def test_unfinished_step_has_no_end_and_no_result(mine: Transaction, clock: SettableClock) -> None:
    mine.turns.begin(ONE, A)
    done = mine.turns.begin_step(A, "model", "large", '{"n": 1}')
    clock.advance(MINUTE)
    mine.turns.end_step(A, done, "")
    mine.turns.begin_step(A, "tool", "read", "{}")
    assert mine.turns.steps(A) == [
        Step(
            turn_id=A,
            number=1,
            kind="model",
            name="large",
            request='{"n": 1}',
            started_at=NOON,
            ended_at=NOON + MINUTE,
            result="",
        ),
        Step(turn_id=A, number=2, kind="tool", name="read", request="{}", started_at=NOON + MINUTE),
    ]


def test_steps_remain_stored_after_the_turn_has_ended(mine: Transaction) -> None:
    mine.turns.begin(ONE, A)
    mine.turns.begin_step(A, "tool", "read", "{}")
    mine.turns.end(A, "answered")
    assert len(mine.turns.steps(A)) == 1
