"""Branches: continue a session from an earlier point; the original stays as it was."""

from collections.abc import Sequence
from datetime import timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, Session, StoredMessage
from talaria.contracts.stores.turns import Cap
from talaria.contracts.values import copy_values
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import ROOM, Message
from talaria.sessions.model_context import SUMMARY, read_summary, record_break

COPIED_VALUES = ("prompt_prefix", "workspace", "grants", "preferences", "todo", "plan_mode")
_PROGRAM_AUTHORS = ("tools", "summary", ROOM)
_NO_LIMIT = 2**62


def create_branch(tx: Transaction, session_id: SessionId, upto: int, title: str) -> Session:
    """Create a branch that shares the messages up to and including ``upto``, and the session's values.

    Earlier spending counts against the cap of the branch too. Raises `NotFound`.
    """
    origin = _get(tx, session_id)
    new = NewSession(
        source=origin.source,
        title=title,
        owner=origin.owner,
        audience=origin.audience,
        model=origin.model,
        parent_id=_find_ancestor(tx, origin, upto),
        parent_seq=upto,
    )
    created = tx.sessions.create(new)
    copy_values(tx, session_id, created.id, COPIED_VALUES)
    _copy_summary(tx, session_id, created.id, upto)
    copy_spending(tx, session_account(session_id), session_account(created.id))
    return created


def list_ancestors(tx: Transaction, session: Session) -> tuple[SessionId, ...]:
    """Return the sessions that contain the history of a branch, the nearest first."""
    found: list[SessionId] = []
    current: Session | None = session
    while current is not None and current.parent_id is not None and current.parent_seq:
        found.append(current.parent_id)
        current = tx.sessions.get(current.parent_id)
    return tuple(found)


def session_account(session_id: SessionId) -> str:
    """Return the ledger account of a session."""
    return f"session:{session_id}"


def copy_spending(tx: Transaction, source: str, target: str) -> None:
    """Add the spending of one account to another."""
    spent = tx.ledger.read_spent(source)
    if spent:
        hold = tx.ledger.reserve([Cap(target, _NO_LIMIT)], spent, timedelta(minutes=1))
        tx.ledger.settle(hold, spent)


def list_exchanges(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the messages that start an exchange: those of a person, or of a goal."""
    return [stored for stored in messages if _is_from_person(stored.message)]


def is_empty_branch(session: Session) -> bool:
    """Return whether a branch has no messages of its own."""
    return session.parent_id is not None and session.message_count <= session.parent_seq


def _is_from_person(message: Message) -> bool:
    return message.role == "user" and message.author not in _PROGRAM_AUTHORS


def _get(tx: Transaction, session_id: SessionId) -> Session:
    session = tx.sessions.get(session_id)
    if session is None:
        raise NotFound(f"There is no session {session_id}.")
    return session


def _find_ancestor(tx: Transaction, session: Session, upto: int) -> SessionId:
    """Return the ancestor with the last shared message, so that chains of branches stay short."""
    while upto and session.parent_id is not None and upto <= session.parent_seq:
        session = _get(tx, session.parent_id)
    return session.id


def _copy_summary(tx: Transaction, source: SessionId, target: SessionId, upto: int) -> None:
    """Copy the summary unless it covers messages that the branch doesn't share."""
    stored_summary = read_summary(tx, source)
    if stored_summary is None:
        return
    if stored_summary.summary.upto <= upto:
        SUMMARY.copy(tx, source, target)
    elif stored_summary.shown and upto:
        record_break(tx, target, f"the summary extends past message {upto}, where the branch starts")
