"""Session lookup by id, start of an id, or part of a title or message, and indexing for searches."""

from collections.abc import Sequence

from talaria.cli.output.terminal import Terminal
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.errors import Ambiguous, NotFound, StoreFull, StoreUnavailable
from talaria.core.ids import SessionId
from talaria.sessions.titles import find_by_name, opening

_CANDIDATES = 10
_BATCH_SIZE = 1000


def find_session(store: Transaction, text: str) -> Session:
    """Return the only session that ``text`` names, archived or not; raises `NotFound` or `Ambiguous`."""
    name = text.strip()
    exact = store.sessions.get(SessionId(name))
    if exact is not None:
        return exact
    found = find_by_name(store, SessionFilter(matching=name, archived=None, limit=_CANDIDATES + 1)) if name else []
    if not found:
        raise NotFound(f"No session matches `{name}`. `talaria sessions list --all` lists them all.")
    if len(found) > 1:
        raise Ambiguous(_describe_candidates(store, name, found))
    return found[0]


def find_sessions(store: Transaction, texts: Sequence[str]) -> list[Session]:
    """Return a session for each name, in order, without duplicates."""
    found = [find_session(store, text) for text in texts]
    return list({session.id: session for session in found}.values())


def format_session_name(session: Session) -> str:
    """Return the display name of a session."""
    return f"“{session.title}” ({session.id})" if session.title else session.id


def _describe_candidates(store: Transaction, name: str, found: list[Session]) -> str:
    shown, more = found[:_CANDIDATES], len(found) > _CANDIDATES
    count = f"more than {_CANDIDATES}" if more else str(len(found))
    lines = [f"  {one.id}  {' '.join(one.title.split()) or opening(store, one) or '(no title)'}" for one in shown]
    return "\n".join([f"`{name}` matches {count} sessions. Use one of these ids:", *lines, *(["  …"] if more else [])])


def index_messages(database: Database, terminal: Terminal) -> None:
    """Update the search index; print a note if the store cannot be written."""
    waiting = database.read(lambda tx: tx.search.unindexed())
    if not waiting:
        return
    try:
        with terminal.progress("Indexing", waiting) as progress:
            while done := database.write(lambda tx: tx.search.catch_up(_BATCH_SIZE)):
                progress.advance(done)
    except (StoreFull, StoreUnavailable) as error:
        terminal.note(f"{waiting} messages aren't indexed yet and may not be found: {error}")
