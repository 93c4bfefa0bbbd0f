"""Titles of sessions, and lookup by title."""

import re

from msgspec import structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter

_MESSAGES_READ = 3
_LONGEST_OPENING = 80
_MOST_OPENINGS = 5_000  # about 30 µs each


def read_opening(tx: Transaction, session: Session) -> str:
    """Return the start of the first user message of an untitled session, to identify it in lists."""
    if session.title or not session.message_count:
        return ""
    first = tx.messages.load(session.id, limit=_MESSAGES_READ)
    text = next((one.message.text for one in first if one.message.role == "user"), "")
    return " ".join(text[: 4 * _LONGEST_OPENING].split())[:_LONGEST_OPENING]


def find_by_name(tx: Transaction, session_filter: SessionFilter) -> list[Session]:
    """Return matching sessions, last used first; ``matching`` also applies to the opening of untitled ones.

    The opening is the start of the first message. An exact id or title is returned alone.
    """
    found = tx.sessions.find(session_filter)
    name = session_filter.matching.casefold()
    if not name or any(name in (one.id, one.title.casefold()) for one in found):
        return found
    untitled = tx.sessions.find(structs.replace(session_filter, matching="", titled=False, limit=_MOST_OPENINGS))
    known = {one.id for one in found}
    by_opening = [one for one in untitled if one.id not in known and name in read_opening(tx, one).casefold()]
    return sorted([*found, *by_opening], key=lambda one: one.updated_at, reverse=True)[: session_filter.limit]


def find_free_title(tx: Transaction, title: str, mark: str, *, owner: str = "") -> str:
    """Return a title with a mark after it, numbered if another session of the owner has that title."""
    title = re.sub(rf" \({re.escape(mark)}(?: \d+)?\)$", "", title)
    number = 1
    while True:
        candidate = f"{title} ({mark} {number})" if number > 1 else f"{title} ({mark})"
        if not _is_taken(tx, candidate, owner):
            return candidate
        number += 1


def _is_taken(tx: Transaction, title: str, owner: str) -> bool:
    found = tx.sessions.find(SessionFilter(matching=title, owner=owner, archived=None, limit=1))
    return bool(found) and found[0].title.casefold() == title.casefold()
