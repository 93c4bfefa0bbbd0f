"""A goal in a few characters, for the edge of a screen."""

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.goals.keeping import read_goal


def goal_mark(tx: Transaction, session_id: SessionId) -> str:
    """Return such as ``goal 3/20``, or nothing where there is no goal or it is reached: one look at one row."""
    state = read_goal(tx, session_id).state
    if state is None or state.status == "done":
        return ""
    turns = f"{state.turns_used}/{state.max_turns}" if state.max_turns else str(state.turns_used)
    remark = " paused" if state.status == "paused" else " waiting" if state.parked else ""
    return f"goal {turns}{remark}"
