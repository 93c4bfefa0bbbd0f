"""Goals that need a follower now: read from an index in the store, so that any worker can resume them."""

from datetime import datetime

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.goals.deciding import Tell, ToJudge, ToWait, what_is_next
from talaria.goals.keeping import ACTIVE


def resumable_goals(tx: Transaction, now: datetime) -> list[SessionId]:
    """Return the sessions whose goal has a turn to judge, a notice to deliver or a wait that is over.

    A wait for a process counts as over, because only a follower can watch the process. A goal with a step in the inbox
    or a running turn is left out: that session is found by its inbox.
    """
    found = [SessionId(entry.key.removeprefix(ACTIVE)) for entry in tx.state.with_prefix(ACTIVE)]
    return [session_id for session_id in found if _needs_follower(tx, session_id, now)]


def _needs_follower(tx: Transaction, session_id: SessionId, now: datetime) -> bool:
    match what_is_next(tx, session_id, now):
        case Tell() | ToJudge():
            return True
        case ToWait(parked):
            return parked.process is not None or parked.until <= now
        case _:
            return False
