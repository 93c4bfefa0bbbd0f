"""Session lookup by id, title or part of a message, and the times that limit a search."""

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from talaria.cli.terminal import Terminal
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.errors import Ambiguous, NotFound, StoreFull, StoreUnavailable
from talaria.core.ids import SessionId
from talaria.sessions.titles import find_by_name, read_opening

_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_MAX_SPAN = timedelta(days=36_500)
_YEARS = range(1970, 9999)
_SPAN = re.compile(r"(\d{1,9})\s*(min|h|d|w|)", re.ASCII)
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


def index_messages(database: Database, terminal: Terminal) -> None:
    """Update the search index; print a note if the store cannot be written."""
    waiting = database.read(lambda tx: tx.search.count_unindexed())
    if not waiting:
        return
    try:
        with terminal.progress("Indexing", waiting) as progress:
            while done := database.write(lambda tx: tx.search.catch_up(_BATCH_SIZE)):
                progress.advance(done)
    except (StoreFull, StoreUnavailable) as error:
        terminal.note(f"{waiting} messages aren't indexed yet and may not be found: {error}")


def parse_span(text: str) -> timedelta:
    """Return the duration of ``30min``, ``12h``, ``7d``, ``2w`` or a number of days."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ArgumentTypeError(f"`{text}` isn't a duration; write it like 30min, 12h, 7d or 2w")
    if int(found[1]) > _MAX_SPAN / _UNITS[found[2]]:
        raise ArgumentTypeError(f"`{text}` is too long; the maximum is {_MAX_SPAN.days} days")
    return int(found[1]) * _UNITS[found[2]]


def parse_when(text: str) -> timedelta | datetime:
    """Return the duration, date or time that the text means."""
    if _SPAN.fullmatch(text.strip()):
        return parse_span(text)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ArgumentTypeError(f"`{text}` isn't a time; write it like 7d, 2026-03-01 or 2026-03-01T14:30") from error
    if when.year not in _YEARS:
        raise ArgumentTypeError(f"`{text}` is too far in the past or future")
    return when


def resolve_time(when: timedelta | datetime | None, now: datetime, zone: tzinfo | None) -> datetime | None:
    """Return the time that is meant; without a zone it is in ``zone``, or in the system's."""
    if when is None:
        return None
    if isinstance(when, timedelta):
        return now - when
    if when.tzinfo is None and zone is not None:
        when = when.replace(tzinfo=zone)
    return when.astimezone(UTC)


def _describe_candidates(store: Transaction, name: str, found: list[Session]) -> str:
    shown, more = found[:_CANDIDATES], len(found) > _CANDIDATES
    count = f"more than {_CANDIDATES}" if more else str(len(found))
    lines = [f"  {one.id}  {' '.join(one.title.split()) or read_opening(store, one) or '(no title)'}" for one in shown]
    return "\n".join([f"`{name}` matches {count} sessions. Use one of these ids:", *lines, *(["  …"] if more else [])])
