"""Go on with a conversation from an earlier point, in a branch of its own; what came behind that point stays."""

from collections.abc import Sequence
from datetime import timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import NewSession, Session
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import Message
from talaria.sessions.prefix import record_break
from talaria.sessions.summaries import kept_summary

_BELONGS_TO_IT = ("prefix", "workspace", "grants", "preferences", "todo")
_NOT_OF_A_PERSON = ("tools", "summary")
_NO_LIMIT = 2**62


def branch(tx: Transaction, session_id: SessionId, upto: int, title: str) -> Session:
    """Begin a branch that shares the messages up to and including ``upto``, and all that belongs to the conversation.

    What was spent so far counts against the cap of the branch too. Raises `NotFound`.
    """
    origin = _get(tx, session_id)
    new = NewSession(
        source=origin.source,
        title=title,
        owner=origin.owner,
        audience=origin.audience,
        model=origin.model,
        parent_id=_holder(tx, origin, upto),
        parent_seq=upto,
    )
    made = tx.sessions.create(new)
    for subject in _BELONGS_TO_IT:
        _copy(tx, subject, session_id, made.id)
    _copy_summary(tx, session_id, made.id, upto)
    copy_spending(tx, session_account(session_id), session_account(made.id))
    return made


def lineage(tx: Transaction, session: Session) -> tuple[SessionId, ...]:
    """Return the conversations in which the past of a branch was said, the nearest first."""
    found: list[SessionId] = []
    here: Session | None = session
    while here is not None and here.parent_id is not None and here.parent_seq:
        found.append(here.parent_id)
        here = tx.sessions.get(here.parent_id)
    return tuple(found)


def session_account(session_id: SessionId) -> str:
    """Return where it is counted what a conversation has cost."""
    return f"session:{session_id}"


def copy_spending(tx: Transaction, source: str, target: str) -> None:
    """Count what was spent on one account on another one too."""
    spent = tx.ledger.spent(source)
    if spent:
        hold = tx.ledger.reserve([Cap(target, _NO_LIMIT)], spent, timedelta(minutes=1))
        tx.ledger.settle(hold, spent)


def exchanges(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the messages with which exchanges begin: what a person, or a goal, has said."""
    return [stored for stored in messages if _is_said(stored.message)]


def is_bare(session: Session) -> bool:
    """Tell whether nothing was said in a branch since it began."""
    return session.parent_id is not None and session.message_count <= session.parent_seq


def _is_said(message: Message) -> bool:
    return message.role == "user" and message.author not in _NOT_OF_A_PERSON


def _get(tx: Transaction, session_id: SessionId) -> Session:
    session = tx.sessions.get(session_id)
    if session is None:
        raise NotFound(f"There is no session {session_id}.")
    return session


def _holder(tx: Transaction, session: Session, upto: int) -> SessionId:
    """Return the ancestor in which the last shared message was said, so that chains of branches stay short."""
    while upto and session.parent_id is not None and upto <= session.parent_seq:
        session = _get(tx, session.parent_id)
    return session.id


def _copy(tx: Transaction, subject: str, source: SessionId, target: SessionId) -> None:
    entry = tx.state.get(f"{subject}:{source}")
    if entry is not None:
        tx.state.put(f"{subject}:{target}", entry.value)


def _copy_summary(tx: Transaction, source: SessionId, target: SessionId, upto: int) -> None:
    """Copy the summary unless it tells of what the branch does not share."""
    kept = kept_summary(tx, source)
    if kept is None:
        return
    if kept.summary.upto <= upto:
        _copy(tx, "summary", source, target)
    elif kept.shown and upto:
        record_break(tx, target, f"the summary reached beyond message {upto}, where the branch begins")
