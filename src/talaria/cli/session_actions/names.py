"""Sessions by the names that people give them: an id, the beginning of one, a title or a part of it."""

from collections.abc import Sequence

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId

_CANDIDATES = 10


def find_session(store: Transaction, text: str) -> Session:
    """Return the one session that ``text`` names, archived or not; raises `NotFound` or `Ambiguous`."""
    name = text.strip()
    exact = store.sessions.get(SessionId(name))
    if exact is not None:
        return exact
    found = store.sessions.find(SessionFilter(matching=name, archived=None, limit=_CANDIDATES + 1)) if name else []
    if not found:
        raise NotFound(f"No session is called `{name}`. `talaria sessions list --all` shows those there are.")
    if len(found) > 1:
        raise Ambiguous(_candidates(name, found))
    return found[0]


def find_sessions(store: Transaction, texts: Sequence[str]) -> list[Session]:
    """Return a session for each name, in this order, and each only once."""
    found = [find_session(store, text) for text in texts]
    return list({session.id: session for session in found}.values())


def called(session: Session) -> str:
    """Return what to call a session in a sentence."""
    return f"“{session.title}” ({session.id})" if session.title else session.id


def _candidates(name: str, found: list[Session]) -> str:
    shown, more = found[:_CANDIDATES], len(found) > _CANDIDATES
    count = f"more than {_CANDIDATES}" if more else str(len(found))
    lines = [f"  {session.id}  {' '.join(session.title.split()) or '(without a title)'}" for session in shown]
    return "\n".join([f"`{name}` fits {count} sessions; name one by its id:", *lines, *(["  …"] if more else [])])
