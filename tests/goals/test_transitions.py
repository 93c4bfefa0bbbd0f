"""Transitions of a goal, without a store: after a turn, a verdict and a wait."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from talaria.contracts.turns import TurnResult
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Usage
from talaria.goals.goal import Allowance, GoalState, Opinion, PendingTurn, Waiting, WatchedProcess
from talaria.goals.transitions import (
    FAILURE_WAITS,
    MAX_UNREADABLE,
    Idle,
    JudgeTurn,
    NextAction,
    NextStep,
    Notify,
    SessionActivity,
    SessionBusy,
    Transition,
    WaitUntil,
    apply_turn_end,
    apply_verdict,
    choose_next_action,
    is_verdict_current,
    wait_ended,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TURN = TurnId("turn-1")
GOAL = GoalState(id="g", goal="Win the game", set_at=NOW, since=NOW, usage=Usage())
PENDING = structs.replace(GOAL, pending=PendingTurn(TURN, "I moved."))
PARKED = Waiting(TURN, NOW + timedelta(minutes=1), "It builds.")
QUIET = SessionActivity(last_turn=TURN)


def ended(state: GoalState, end: TurnEnd) -> Transition:
    return apply_turn_end(state, TurnResult(SessionId("s"), TURN, end, None), NOW)


@pytest.mark.parametrize(
    ("state", "activity", "action"),
    [
        (None, QUIET, Idle()),
        (structs.replace(PENDING, untold="Look."), SessionActivity(has_step=True), Notify()),
        (PENDING, SessionActivity(has_step=True, is_busy=True), Idle(has_step=True)),
        (GOAL.pause("you paused it"), SessionActivity(is_busy=True), Idle()),
        (PENDING, SessionActivity(is_busy=True), SessionBusy()),
        (PENDING, QUIET, JudgeTurn(PENDING, PendingTurn(TURN, "I moved."))),
        (structs.replace(GOAL, parked=PARKED), QUIET, WaitUntil(PARKED)),
        (GOAL, QUIET, WaitUntil(Waiting(TURN, NOW, ""))),
        (GOAL, SessionActivity(), Idle()),
    ],
)
def test_next_action_follows_from_goal_and_session(
    state: GoalState | None, activity: SessionActivity, action: NextAction
) -> None:
    assert choose_next_action(state, activity, NOW) == action


def test_answered_turn_is_to_be_judged() -> None:
    state = ended(structs.replace(GOAL, failures=2, parked=PARKED), TurnAnswered("I moved.")).state
    assert (state.pending, state.parked, state.failures) == (PendingTurn(TURN, "I moved."), None, 0)


@pytest.mark.parametrize(
    ("end", "reason"),
    [(TurnStopped(), "you stopped the turn"), (TurnOutOfBudget("money", "x"), "a limit on spending was reached")],
)
def test_stopped_turn_and_spent_budget_pause_the_goal(end: TurnEnd, reason: str) -> None:
    state = ended(PENDING, end).state
    assert (state.status, state.pending) == ("paused", None)
    assert state.paused_reason.startswith(reason)
    assert state.untold.startswith("Goal paused (0 of 20 turns)")


def test_failed_turns_wait_longer_and_pause_in_the_end() -> None:
    state = GOAL
    for wait in FAILURE_WAITS:
        transition = ended(state, TurnFailed("No network."))
        state = transition.state
        assert transition.verdict is state.last
        assert state.parked is not None
        assert state.parked.until == NOW + wait
    state = ended(state, TurnFailed("No network.")).state
    assert (state.status, state.turns_used) == ("paused", len(FAILURE_WAITS) + 1)
    assert "3 turns in a row failed" in state.paused_reason


def test_verdict_to_continue_gives_verdict_notice_and_step() -> None:
    opinion = Opinion(verdict="continue", reason="One part is missing.")
    transition = apply_verdict(PENDING, opinion, TURN, Usage(), None, NOW)
    assert transition.step == NextStep(TURN, "One part is missing.")
    assert transition.verdict is transition.state.last
    assert transition.state.untold == "Goal: not reached yet (1 of 20 turns): One part is missing."
    assert (transition.state.pending, transition.state.turns_used) == (None, 1)


@pytest.mark.parametrize(
    ("state", "opinion", "status"),
    [
        (PENDING, Opinion(verdict="done", reason="It is shown."), "done"),
        (PENDING, Opinion(verdict="stop", reason="A key is needed."), "paused"),
        (structs.replace(PENDING, allowance=Allowance(turns=1)), Opinion(verdict="continue", reason="x"), "paused"),
        (PENDING, Opinion(verdict="wait", reason="It builds.", wait_seconds=60), "active"),
        (PENDING, Opinion(verdict="continue", reason="x", failure="unavailable"), "active"),
        (
            structs.replace(PENDING, judge_failures=MAX_UNREADABLE - 1, unreadable=MAX_UNREADABLE - 1),
            Opinion(verdict="continue", reason="x", failure="unreadable"),
            "paused",
        ),
    ],
)
def test_other_verdicts_queue_no_step(state: GoalState, opinion: Opinion, status: str) -> None:
    transition = apply_verdict(state, opinion, TURN, Usage(), None, NOW)
    assert (transition.step, transition.state.status) == (None, status)
    assert (transition.state.parked is not None) == (status == "active")
    assert transition.state.untold


def test_wait_for_a_process_is_parked_with_it() -> None:
    process = WatchedProcess(4711, "1", "here")
    opinion = Opinion(verdict="wait", reason="It builds.", wait_seconds=60)
    state = apply_verdict(PENDING, opinion, TURN, Usage(), process, NOW).state
    assert state.parked == Waiting(TURN, NOW + timedelta(seconds=60), "It builds.", process)
    assert "waiting for process 4711" in state.untold


def test_verdict_is_discarded_after_a_change() -> None:
    judged = JudgeTurn(PENDING, PendingTurn(TURN, "I moved."))
    assert is_verdict_current(PENDING, QUIET, judged, NOW)
    assert is_verdict_current(structs.replace(PENDING, failures=1), QUIET, judged, NOW)
    assert not is_verdict_current(None, QUIET, judged, NOW)
    assert not is_verdict_current(PENDING, SessionActivity(is_busy=True), judged, NOW)
    assert not is_verdict_current(structs.replace(PENDING, subgoals=("fairly",)), QUIET, judged, NOW)
    assert not is_verdict_current(structs.replace(PENDING, id="other"), QUIET, judged, NOW)
    assert not is_verdict_current(structs.replace(PENDING, pending=None), QUIET, judged, NOW)


def test_ended_wait_gives_the_next_step() -> None:
    transition = wait_ended(structs.replace(GOAL, parked=PARKED), QUIET, PARKED, 3, Usage(), NOW)
    assert transition is not None
    assert (transition.state, transition.verdict) == (GOAL, None)
    assert transition.step == NextStep(TURN, "the wait is over (It builds).")


def test_goal_without_a_wait_continues_once_per_version() -> None:
    transition = wait_ended(GOAL, QUIET, Waiting(TURN, NOW, ""), 3, Usage(), NOW)
    assert transition is not None
    assert transition.step == NextStep(f"{TURN}:3", "")


def test_wait_ends_in_a_pause_where_the_budget_is_used_up() -> None:
    state = structs.replace(GOAL, parked=PARKED, allowance=Allowance(seconds=60))
    transition = wait_ended(state, QUIET, PARKED, 3, Usage(), NOW + timedelta(minutes=1))
    assert transition is not None
    assert (transition.step, transition.state.status) == (None, "paused")


def test_wait_is_discarded_after_a_change() -> None:
    parked = structs.replace(GOAL, parked=PARKED)
    later = structs.replace(PARKED, turn=TurnId("turn-2"))
    assert wait_ended(None, QUIET, PARKED, 3, Usage(), NOW) is None
    assert wait_ended(structs.replace(GOAL, parked=later), QUIET, PARKED, 3, Usage(), NOW) is None
    assert wait_ended(parked, SessionActivity(is_busy=True, last_turn=TURN), PARKED, 3, Usage(), NOW) is None
    assert wait_ended(GOAL, SessionActivity(last_turn=TurnId("turn-2")), PARKED, 3, Usage(), NOW) is None
