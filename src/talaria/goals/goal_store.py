"""Goals in the store: state, history of verdicts, steps in the inbox, and the transactions of transitions."""

from datetime import datetime

import msgspec
from msgspec import Struct, structs

from talaria.contracts.background_processes import list_processes
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.turns import TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.errors import NotFound, StoreConflict
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text, Usage
from talaria.goals.goal import GOAL, GoalState, JudgedTurn, Opinion, StoredGoal, Waiting, WatchedProcess, read_goal
from talaria.goals.transitions import (
    Idle,
    JudgeTurn,
    NextAction,
    NextStep,
    Notify,
    RunningProcess,
    SessionActivity,
    Transition,
    WaitUntil,
    apply_turn_end,
    apply_verdict,
    build_continuation,
    choose_next_action,
    is_verdict_current,
    wait_ended,
)
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turns import make_arrival

KIND = "goal"
GOALS = "goals"  # topic notified when a goal was changed
ACTIVE_GOAL = SessionValue("active_goal", bool)  # of the goals that need a follower
LOW_PRIORITY = -1
_PAGE_SIZE = 1_000
_encode = msgspec.json.Encoder().encode
_decode_judged = msgspec.json.Decoder(JudgedTurn).decode


def write_goal(tx: Transaction, session_id: SessionId, stored: StoredGoal, state: GoalState | None) -> None:
    """Replace the goal that was read.

    A dropped goal leaves an empty entry, so that versions keep counting. Raises `StoreConflict` after a concurrent
    change: the transaction is rolled back and runs again.
    """
    if not GOAL.replace(tx, session_id, state, version=stored.version):
        raise StoreConflict(f"the goal of session {session_id} changed in the meantime")
    _index(tx, session_id, state)
    tx.notify(GOALS)


def get_usage(tx: Transaction, session_id: SessionId) -> Usage:
    """Return the usage of a session so far."""
    session = tx.sessions.get(session_id)
    if session is None:
        raise NotFound("There is no such conversation.")
    return session.usage


def add_usage(tx: Transaction, session_id: SessionId, usage: Usage, *, has_price: bool = True) -> Usage:
    """Add the usage of a judge to that of a session, and return the sum."""
    if usage != Usage():
        tx.usage.add(session_id, usage, has_price=has_price)
    return get_usage(tx, session_id)


def record_verdict(tx: Transaction, session_id: SessionId, verdict: JudgedTurn | None) -> None:
    """Add a verdict, if there is one, to the history."""
    if verdict is not None:
        tx.events.append(_build_goal_key(session_id), [(verdict.verdict, _encode(verdict).decode())])


def read_history(tx: Transaction, session_id: SessionId, last: int) -> list[JudgedTurn]:
    """Return the last verdicts, oldest first."""
    found: list[JudgedTurn] = []
    seq = 0
    while page := tx.events.after(_build_goal_key(session_id), seq, _PAGE_SIZE):
        found = [*found, *(_decode_judged(event.payload) for event in page)][-last:]
        seq = page[-1].seq
    return found


def queue_first_step(tx: Transaction, session_id: SessionId, state: GoalState, text: str) -> None:
    """Add the text of the user to the inbox, as their message."""
    message = Message(role="user", parts=(Text(text),), at=state.since)
    tx.inbox.add(make_arrival(session_id, KIND, f"{state.id}:start", message, kind=KIND, sender=state.setter))


def queue_next_step(tx: Transaction, session_id: SessionId, state: GoalState, step: NextStep, now: datetime) -> None:
    """Add the next step to the inbox, after all messages of users; once for each ``step.after``."""
    message = Message(role="user", parts=(Text(build_continuation(state, step.reason)),), at=now, author=KIND)
    arrival = make_arrival(session_id, KIND, f"{state.id}:{step.after}", message, kind=KIND, sender=state.setter)
    tx.inbox.add(structs.replace(arrival, priority=LOW_PRIORITY))


def withdraw_steps(tx: Transaction, session_id: SessionId, *, kick_off: bool = True) -> None:
    """Withdraw the steps in the inbox; with ``kick_off`` also the first one."""
    waiting = [item for item in tx.inbox.list_unsettled(session_id) if item.kind == KIND and item.state == "waiting"]
    tx.inbox.settle([item.id for item in waiting if kick_off or item.priority == LOW_PRIORITY])


def read_activity(tx: Transaction, session_id: SessionId) -> SessionActivity:
    """Return the activity of a goal's session: inbox, running turn and last turn."""
    unsettled = tx.inbox.list_unsettled(session_id)
    last = tx.turns.find(session_id, limit=1)
    return SessionActivity(
        has_step=any(item.kind == KIND and item.state == "waiting" for item in unsettled),
        is_busy=bool(unsettled) or is_turn_running(tx, session_id),
        last_turn=last[-1].id if last else None,
    )


def is_turn_running(tx: Transaction, session_id: SessionId) -> bool:
    """Return whether a turn of a session runs, here or in another process."""
    return bool(tx.turns.find(session_id, running=True, limit=1))


def list_running_processes(tx: Transaction, session_id: SessionId) -> list[RunningProcess]:
    """Return the background processes of a session, which a goal may wait for."""
    found = list_processes(tx, session_id)
    return [RunningProcess(process.pid, process.command) for process in found if process.is_alive and process.pid]


def find_next_action(tx: Transaction, session_id: SessionId, now: datetime) -> NextAction:
    """Return the next action for the goal of a session."""
    state = read_goal(tx, session_id).state
    return choose_next_action(state, read_activity(tx, session_id), now) if state is not None else Idle()


def list_resumable_goals(tx: Transaction, now: datetime) -> list[SessionId]:
    """Return the sessions whose goal has a turn to judge, a notice to deliver or a wait that is over.

    A wait for a process counts as over, because only a follower can watch the process. A goal with a step in the inbox
    or a running turn is left out: that session is found by its inbox.
    """
    return [session_id for session_id in ACTIVE_GOAL.sessions(tx) if _needs_follower(tx, session_id, now)]


def _needs_follower(tx: Transaction, session_id: SessionId, now: datetime) -> bool:
    match find_next_action(tx, session_id, now):
        case Notify() | JudgeTurn():
            return True
        case WaitUntil(parked):
            return parked.process is not None or parked.until <= now
        case _:
            return False


def record_turn_end(tx: Transaction, result: TurnResult, now: datetime) -> None:
    """Apply the end of a turn to an active goal.

    A pending step in the inbox is withdrawn: this turn is judged first.
    """
    stored = read_goal(tx, result.session_id)
    if stored.state is not None and stored.state.status == "active":
        withdraw_steps(tx, result.session_id, kick_off=False)
        _apply(tx, result.session_id, stored, apply_turn_end(stored.state, result, now), now)


class GoalNotice(Struct, frozen=True):
    """A notice for the user; it is ``posted`` if it was queued for the chat of the session."""

    text: str = ""
    posted: bool = False


class Conclusion(Struct, frozen=True):
    """The stored outcome of a verdict: the notice, and whether the next step is queued."""

    notice: GoalNotice
    has_step: bool


def conclude_turn(
    tx: Transaction,
    session_id: SessionId,
    judged: JudgeTurn,
    opinion: Opinion,
    watched: WatchedProcess | None,
    now: datetime,
    key: str = "",
) -> Conclusion | None:
    """Count a judged turn and apply its verdict; ``None`` if goal or session have changed since.

    The verdict, the next step and the notice are one transaction, so that each happens once. The notice is queued for
    the chat with this ``key``, if the session is bound to it; otherwise the caller shows it. The usage of the judge
    counts in either case.
    """
    usage = add_usage(tx, session_id, opinion.usage)
    stored = read_goal(tx, session_id)
    if stored.state is None or not is_verdict_current(stored.state, read_activity(tx, session_id), judged, now):
        return None
    transition = apply_verdict(stored.state, opinion, judged.pending.turn, usage, watched, now)
    shown = structs.replace(transition, state=structs.replace(transition.state, untold=""))
    _apply(tx, session_id, stored, shown, now)
    return Conclusion(_post_notice(tx, session_id, transition.state.untold, key), transition.step is not None)


def end_wait(tx: Transaction, session_id: SessionId, parked: Waiting, now: datetime) -> bool:
    """End a wait; return whether the next step was queued."""
    stored = read_goal(tx, session_id)
    activity, usage = read_activity(tx, session_id), get_usage(tx, session_id)
    transition = wait_ended(stored.state, activity, parked, stored.version, usage, now)
    if transition is None:
        return False
    _apply(tx, session_id, stored, transition, now)
    return transition.step is not None


def _apply(tx: Transaction, session_id: SessionId, stored: StoredGoal, transition: Transition, now: datetime) -> None:
    record_verdict(tx, session_id, transition.verdict)
    if transition.step is not None:
        queue_next_step(tx, session_id, transition.state, transition.step, now)
    write_goal(tx, session_id, stored, transition.state)


def take_notice(tx: Transaction, session_id: SessionId, key: str = "") -> GoalNotice:
    """Return the pending notice for the user, and clear it; it is queued for the chat as in `conclude_turn`."""
    stored = read_goal(tx, session_id)
    if stored.state is None or not stored.state.untold:
        return GoalNotice()
    write_goal(tx, session_id, stored, structs.replace(stored.state, untold=""))
    return _post_notice(tx, session_id, stored.state.untold, key)


def _post_notice(tx: Transaction, session_id: SessionId, text: str, key: str) -> GoalNotice:
    """Queue a notice for the chat with this key, if the session is bound to it."""
    binding = tx.bindings.get(key) if text and key else None
    if binding is None or binding.session_id != session_id:
        return GoalNotice(text)
    queue_notice(tx, session_id, binding.address, Content(text=text))
    return GoalNotice(text, posted=True)


def _index(tx: Transaction, session_id: SessionId, state: GoalState | None) -> None:
    """Maintain an index entry for each goal that needs a follower.

    With it a gateway finds these goals without reading every session.
    """
    if state is not None and (state.status == "active" or state.untold):
        ACTIVE_GOAL.write(tx, session_id, value=True)
    else:
        ACTIVE_GOAL.delete(tx, session_id)


def _build_goal_key(session_id: SessionId) -> str:
    return f"goal:{session_id}"


def format_goal_badge(tx: Transaction, session_id: SessionId) -> str:
    """Return the badge of a goal, for example ``goal 3/20``; empty without a goal or when reached."""
    state = read_goal(tx, session_id).state
    if state is None or state.status == "done":
        return ""
    turns = f"{state.turns_used}/{state.max_turns}" if state.max_turns else str(state.turns_used)
    note = " paused" if state.status == "paused" else " waiting" if state.parked else ""
    return f"goal {turns}{note}"
