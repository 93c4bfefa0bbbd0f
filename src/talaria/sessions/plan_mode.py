"""Plan mode of a session: the agent may only read until a person approves its plan."""

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId

PLAN_INSTRUCTIONS = (
    "Plan mode is on: until a plan is approved, only tools and commands that read are allowed. Investigate first. Then "
    "write the plan: the goal, the steps, the files to change, and how to check the result. When it is complete, start "
    "with its first step: the user is asked to approve the plan at that moment, and if they do, carry it out."
)


class PlanMode(Struct, frozen=True):
    """State of plan mode; once ``announced``, the model has got the instructions."""

    is_on: bool
    announced: bool = False


PLAN_MODE = SessionValue("plan_mode", PlanMode)


def start_planning(tx: Transaction, session_id: SessionId, *, announced: bool = False) -> None:
    """Switch plan mode on."""
    PLAN_MODE.write(tx, session_id, PlanMode(is_on=True, announced=announced))


def stop_planning(tx: Transaction, session_id: SessionId) -> None:
    """Switch plan mode off: the plan is approved, or no longer needed."""
    PLAN_MODE.delete(tx, session_id)


def read_plan_mode(tx: Transaction, session_id: SessionId) -> PlanMode:
    """Return the state of plan mode."""
    return PLAN_MODE.get(tx, session_id) or PlanMode(is_on=False)
