"""The goal of a conversation in the store: its state, the history of its verdicts, its places in the inbox."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.core.errors import NotFound, StoreConflict
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text, Usage
from talaria.goals.goal import GoalState, Judged
from talaria.goals.prompts import continuation
from talaria.sessions.lane import arrival

KIND = "goal"
ACTIVE = "active-goal:"
_GOAL = "goal:"
_INDEXED = "active-goals-indexed"
BEHIND_PEOPLE = -1
_ALL = 1_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(GoalState | None).decode
_decode_judged = msgspec.json.Decoder(Judged).decode


class Kept(Struct, frozen=True):
    """A goal as it was read; its version tells later whether somebody else has changed it."""

    state: GoalState | None
    version: int


def read_goal(tx: Transaction, session_id: SessionId) -> Kept:
    """Return the goal of a conversation, if it has one."""
    entry = tx.state.get(_name(session_id))
    return Kept(_decode(entry.value), entry.version) if entry else Kept(None, 0)


def write_goal(tx: Transaction, session_id: SessionId, kept: Kept, state: GoalState | None) -> None:
    """Put a goal in the place of the one that was read.

    A goal that is dropped leaves an empty entry, so that versions go on. If another transaction was quicker, this one
    is undone and runs again.
    """
    if not tx.state.replace(_name(session_id), _encode(state).decode(), version=kept.version):
        raise StoreConflict(f"the goal of session {session_id} was changed meanwhile")
    _index(tx, session_id, state)


def index_existing_goals(tx: Transaction) -> None:
    """Index the goals of a store from before the index existed; does nothing the second time."""
    if tx.state.get(_INDEXED) is not None:
        return
    for entry in tx.state.with_prefix(_GOAL):
        _index(tx, SessionId(entry.key.removeprefix(_GOAL)), _decode(entry.value))
    tx.state.put(_INDEXED, "")


def usage_of(tx: Transaction, session_id: SessionId) -> Usage:
    """Return what a conversation has used so far."""
    session = tx.sessions.get(session_id)
    if session is None:
        raise NotFound("There is no such conversation.")
    return session.usage


def record(tx: Transaction, session_id: SessionId, judged: Judged) -> None:
    """Add a verdict to the history."""
    tx.events.append(_name(session_id), [(judged.verdict, _encode(judged).decode())])


def read_history(tx: Transaction, session_id: SessionId, last: int) -> list[Judged]:
    """Return the last verdicts, oldest first."""
    found: list[Judged] = []
    seq = 0
    while page := tx.events.after(_name(session_id), seq, _ALL):
        found = [*found, *(_decode_judged(event.payload) for event in page)][-last:]
        seq = page[-1].seq
    return found


def put_kick_off(tx: Transaction, session_id: SessionId, state: GoalState, text: str) -> None:
    """Put what the person typed into the inbox, as their message."""
    message = Message(role="user", parts=(Text(text),), at=state.since)
    tx.inbox.add(arrival(session_id, KIND, f"{state.id}:start", message, kind=KIND, sender=state.setter))


def put_continuation(
    tx: Transaction, session_id: SessionId, state: GoalState, behind: str, reason: str, now: datetime
) -> None:
    """Put the next step into the inbox, behind all that people have said; once only for each ``behind``."""
    message = Message(role="user", parts=(Text(continuation(state, reason)),), at=now, author=KIND)
    came = arrival(session_id, KIND, f"{state.id}:{behind}", message, kind=KIND, sender=state.setter)
    step = structs.replace(came, priority=BEHIND_PEOPLE)
    tx.inbox.add(step)


def withdraw(tx: Transaction, session_id: SessionId, *, kick_off: bool = True) -> None:
    """Take back steps that wait in the inbox, that with which a goal begins among them if wanted."""
    waiting = [item for item in tx.inbox.unsettled(session_id) if item.kind == KIND and item.state == "waiting"]
    tx.inbox.settle([item.id for item in waiting if kick_off or item.priority == BEHIND_PEOPLE])


def goal_caps(tx: Transaction, session_id: SessionId) -> Sequence[Cap]:
    """Return what may be spent on the goal that is being worked at, as a cap for the ledger."""
    state = read_goal(tx, session_id).state
    if state is None or state.status != "active" or not state.allowance.microdollars:
        return ()
    return (Cap(state.account, state.allowance.microdollars),)


def told(tx: Transaction, session_id: SessionId) -> str:
    """Return what the person was to read next, and forget it."""
    kept = read_goal(tx, session_id)
    if kept.state is None or not kept.state.untold:
        return ""
    write_goal(tx, session_id, kept, structs.replace(kept.state, untold=""))
    return kept.state.untold


def _index(tx: Transaction, session_id: SessionId, state: GoalState | None) -> None:
    """Keep a key for each goal that needs a follower, so that a gateway finds it without reading every session."""
    key = f"{ACTIVE}{session_id}"
    if state is not None and (state.status == "active" or state.untold):
        tx.state.put(key, "")
    else:
        tx.state.delete(key)


def _name(session_id: SessionId) -> str:
    return f"{_GOAL}{session_id}"
