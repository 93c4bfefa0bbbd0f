"""What becomes of a goal when a turn ends, when it has been judged, and when a wait is over; all in transactions."""

from datetime import datetime, timedelta

from msgspec import Struct, structs

from talaria.contracts.follower import Ending
from talaria.contracts.store import Transaction
from talaria.core.events import TurnAnswered, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Usage
from talaria.goals.goal import GoalState, Judged, Parked, Pending, Watched, in_dollars, in_words
from talaria.goals.keeping import KIND, put_continuation, read_goal, record, usage_of, withdraw, write_goal
from talaria.goals.prompts import shortened
from talaria.goals.verdicts import Opinion

FAILURE_WAITS = (timedelta(seconds=30), timedelta(minutes=2))
MOST_UNREADABLE = 3
_FIRST_JUDGE_WAIT, _LONGEST_JUDGE_WAIT = timedelta(seconds=2), timedelta(minutes=5)


class Nothing(Struct, frozen=True):
    """Nothing is to be done; ``waits`` says that there is a step in the inbox already."""

    waits: bool = False


class Busy(Struct, frozen=True):
    """Somebody's message waits or is worked on, here or in another program: that comes first."""


class Tell(Struct, frozen=True):
    """The person is to be told something."""


class ToJudge(Struct, frozen=True):
    """A turn is to be judged."""

    state: GoalState
    pending: Pending


class ToWait(Struct, frozen=True):
    """A wait is going on."""

    parked: Parked


Next = Nothing | Busy | Tell | ToJudge | ToWait


def what_is_next(tx: Transaction, session_id: SessionId, now: datetime) -> Next:
    """Return what a goal needs next.

    Nothing is judged while somebody's message waits or is worked on: the turn for it will be judged. A goal that was
    left without anything that leads on goes on behind the last turn, or waits for the first.
    """
    state = read_goal(tx, session_id).state
    if state is None:
        return Nothing()
    if state.untold:
        return Tell()
    unsettled = tx.inbox.unsettled(session_id)
    if any(item.kind == KIND and item.state == "waiting" for item in unsettled):
        return Nothing(waits=True)
    if state.status != "active":
        return Nothing()
    if unsettled or tx.turns.find(session_id, running=True, limit=1):
        return Busy()
    if state.pending is not None:
        return ToJudge(state, state.pending)
    if state.parked is not None:
        return ToWait(state.parked)
    turns = tx.turns.find(session_id, limit=1)
    return ToWait(Parked(turns[-1].id, now, "")) if turns else Nothing()


def note_ending(tx: Transaction, ending: Ending, now: datetime) -> None:
    """Take note of the end of a turn, in its own transaction.

    A step that waits in the inbox is taken back: this turn is judged first.
    """
    kept = read_goal(tx, ending.session_id)
    state = kept.state
    if state is None or state.status != "active":
        return
    withdraw(tx, ending.session_id, kick_off=False)
    match ending.end:
        case TurnStopped():
            state = _paused(state, "you stopped the turn")
        case TurnOutOfBudget(limit="money"):
            state = _paused(state, _out_of_money(state))
        case TurnFailed(text):
            state = _failed(tx, state, ending, text, now)
        case TurnAnswered(text) | TurnOutOfBudget(text=text):
            said = text if isinstance(ending.end, TurnAnswered) else ""
            reply = shortened(ending.reply.text if ending.reply else said)
            state = structs.replace(state, pending=Pending(ending.turn_id, reply), parked=None, failures=0)
    write_goal(tx, ending.session_id, kept, state)


def conclude(
    tx: Transaction, session_id: SessionId, judged: ToJudge, opinion: Opinion, watched: Watched | None, now: datetime
) -> bool:
    """Count a turn and do what its verdict says, unless something has changed since it was asked for.

    The next step goes into the inbox in the same transaction: it comes once, whatever happens.
    """
    kept = read_goal(tx, session_id)
    state = kept.state
    if state is None or what_is_next(tx, session_id, now) != ToJudge(state, judged.pending):
        return False
    if (state.id, state.subgoals) != (judged.state.id, judged.state.subgoals):
        return False
    counted = counted_and_decided(state, opinion, judged.pending.turn, usage_of(tx, session_id), watched, now)
    assert counted.last is not None
    record(tx, session_id, counted.last)
    if counted.status == "active" and counted.parked is None:
        put_continuation(tx, session_id, counted, judged.pending.turn, opinion.reason, now)
    write_goal(tx, session_id, kept, counted)
    return True


def end_wait(tx: Transaction, session_id: SessionId, parked: Parked, now: datetime) -> bool:
    """Go on behind a wait that is over, unless something has changed since it began."""
    kept = read_goal(tx, session_id)
    state = kept.state
    if state is None or state.parked not in (parked, None):
        return False
    following = what_is_next(tx, session_id, now)
    if not isinstance(following, ToWait) or following.parked.turn != parked.turn:
        return False
    reason = state.used_up(now, usage_of(tx, session_id))
    if reason:
        write_goal(tx, session_id, kept, _paused(state, reason))
        return True
    behind = parked.turn if state.parked else f"{parked.turn}:{kept.version}"
    not_judged = state.last is not None and state.last.failure
    put_continuation(tx, session_id, state, behind, parked.reason if not_judged else _wait_over(parked), now)
    write_goal(tx, session_id, kept, structs.replace(state, parked=None))
    return True


def counted_and_decided(
    state: GoalState, opinion: Opinion, turn: TurnId, usage: Usage, watched: Watched | None, now: datetime
) -> GoalState:
    """Return the goal behind a turn that was judged so."""
    judged = Judged(now, state.id, turn, opinion.verdict, opinion.reason, opinion.exit_code, opinion.failure)
    counted = structs.replace(
        state,
        turns_used=state.turns_used + 1,
        last=judged,
        pending=None,
        parked=None,
        failures=0,
        judge_failures=state.judge_failures + 1 if opinion.failure else 0,
        unreadable=state.unreadable + (opinion.failure == "unreadable") if opinion.failure else 0,
    )
    if opinion.verdict == "done":
        return structs.replace(counted, status="done", untold=f"Goal reached ({counted.progress}): {opinion.reason}")
    if opinion.verdict == "stop":
        return _paused(counted, opinion.reason.rstrip("."))
    reason = counted.used_up(now, usage)
    if reason:
        return _paused(counted, reason)
    if opinion.failure:
        return _not_judged(counted, opinion, turn, now)
    if opinion.verdict == "wait":
        parked = Parked(turn, now + timedelta(seconds=opinion.wait_seconds), opinion.reason, watched)
        told = f"Goal: waiting for {_what(parked, now)} ({counted.progress}): {opinion.reason}"
        return structs.replace(counted, parked=parked, untold=told)
    return structs.replace(counted, untold=f"Goal: not reached yet ({counted.progress}): {opinion.reason}")


def _paused(state: GoalState, reason: str) -> GoalState:
    told = f"Goal paused ({state.progress}), because {reason}. `/goal resume` goes on."
    return structs.replace(state.paused(reason), untold=told)


def _not_judged(state: GoalState, opinion: Opinion, turn: TurnId, now: datetime) -> GoalState:
    """Wait longer after each turn in a row that was not judged; leave it to the person when answers are unreadable."""
    if state.unreadable >= MOST_UNREADABLE:
        return _paused(state, f"the last {state.unreadable} answers of the judge could not be read")
    wait = min(_FIRST_JUDGE_WAIT * 2 ** (state.judge_failures - 1), _LONGEST_JUDGE_WAIT)
    parked = Parked(turn, now + wait, opinion.reason)
    told = f"Goal ({state.progress}): {opinion.reason} Continuing in {in_words(wait.total_seconds())}."
    return structs.replace(state, parked=parked, untold=told)


def _failed(tx: Transaction, state: GoalState, ending: Ending, text: str, now: datetime) -> GoalState:
    """Wait longer after each failure in a row, and leave it to the person after the third."""
    judged = Judged(now, state.id, ending.turn_id, "failed", text)
    record(tx, ending.session_id, judged)
    failures = state.failures + 1
    state = structs.replace(
        state, failures=failures, turns_used=state.turns_used + 1, last=judged, pending=None, parked=None
    )
    if failures > len(FAILURE_WAITS):
        return _paused(state, f"{failures} turns in a row failed, the last one with: {text.rstrip('.')}")
    wait = FAILURE_WAITS[failures - 1]
    parked = Parked(ending.turn_id, now + wait, f"the last turn failed: {text}")
    told = f"Goal: the turn failed; going on in {in_words(wait.total_seconds())} ({state.progress})."
    return structs.replace(state, parked=parked, untold=told)


def _out_of_money(state: GoalState) -> str:
    own = state.allowance.microdollars
    where = f"its own {in_dollars(own)}, or one of `budget` in the settings" if own else "`budget` in the settings"
    return f"a limit on spending was reached ({where})"


def _wait_over(parked: Parked) -> str:
    return f"the wait is over ({parked.reason.rstrip('.')})." if parked.reason else ""


def _what(parked: Parked, now: datetime) -> str:
    if parked.process is not None:
        return f"process {parked.process.pid}"
    return in_words((parked.until - now).total_seconds())
