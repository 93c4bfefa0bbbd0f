"""Goal of a session as stored: its value with a version, its spending cap, and the recorder of turn ends."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.turns import TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId
from talaria.goals.goal import GoalState

GOAL: SessionValue[GoalState | None] = SessionValue("goal", GoalState | None)  # ``goal:<session id>``


class StoredGoal(Struct, frozen=True):
    """A goal as it was read, with the version that detects a concurrent change."""

    state: GoalState | None
    version: int


def read_goal(tx: Transaction, session_id: SessionId) -> StoredGoal:
    """Return the goal of a session, if it has one."""
    stored = GOAL.read(tx, session_id)
    return StoredGoal(stored.value, stored.version)


def goal_caps(tx: Transaction, session_id: SessionId) -> Sequence[Cap]:
    """Return the spending limit of the active goal, as a cap for the ledger."""
    state = read_goal(tx, session_id).state
    if state is None or state.status != "active" or not state.allowance.microdollars:
        return ()
    return (Cap(state.account, state.allowance.microdollars),)


class GoalRecorder:
    """Turn listener that records how turns end, for a surface that does not stay open; implements `TurnListener`.

    A surface that stays open drives the goal from there.
    """

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> None:
        """Apply the end of a turn to the goal, in its transaction."""
        if read_goal(tx, ending.session_id).state is None:
            return
        from talaria.goals.goal_store import record_turn_end  # noqa: PLC0415 (loaded for a session with a goal)

        record_turn_end(tx, ending, datetime.now(UTC))
