"""Titles of sessions, and lookup by title."""

import re
from typing import TYPE_CHECKING

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session, SessionChanges, SessionFilter
from talaria.core.ids import SessionId

if TYPE_CHECKING:  # loads asyncio, which lists of sessions don't need
    from talaria.agent.auxiliary import Auxiliary

_MESSAGES_READ = 3
_LONGEST_OPENING = 80
_MOST_OPENINGS = 5_000  # about 30 µs each


def opening(tx: Transaction, session: Session) -> str:
    """Return the start of the first user message of an untitled session, to identify it in lists."""
    if session.title or not session.message_count:
        return ""
    first = tx.messages.load(session.id, limit=_MESSAGES_READ)
    text = next((one.message.text for one in first if one.message.role == "user"), "")
    return " ".join(text[: 4 * _LONGEST_OPENING].split())[:_LONGEST_OPENING]


async def generate_title(store: Store, session_id: SessionId, auxiliary: "Auxiliary") -> bool:
    """Give a session a title that a model made from its first messages; return whether it has one now."""
    from talaria.agent.context_window import unwrap_messages  # noqa: PLC0415 (loaded when a title is made)

    session = await store.read(lambda tx: tx.sessions.get(session_id))
    if session is None or session.title:
        return True
    first = await store.read(lambda tx: tx.messages.load(session_id, limit=_MESSAGES_READ + 1))
    title = await auxiliary.title(unwrap_messages(first))
    return bool(title) and await store.write(lambda tx: _set_title(tx, session_id, title))


def _set_title(tx: Transaction, session_id: SessionId, title: str) -> bool:
    session = tx.sessions.get(session_id)
    if session is not None and not session.title:
        tx.sessions.update(session_id, SessionChanges(title=title))
    return True


def find_by_name(tx: Transaction, wanted: SessionFilter) -> list[Session]:
    """Return matching sessions, last used first; ``matching`` also applies to the opening of untitled ones.

    The opening is the start of the first message. An exact id or title is returned alone.
    """
    found = tx.sessions.find(wanted)
    name = wanted.matching.casefold()
    if not name or any(name in (one.id, one.title.casefold()) for one in found):
        return found
    untitled = tx.sessions.find(structs.replace(wanted, matching="", titled=False, limit=_MOST_OPENINGS))
    known = {one.id for one in found}
    by_opening = [one for one in untitled if one.id not in known and name in opening(tx, one).casefold()]
    return sorted([*found, *by_opening], key=lambda one: one.updated_at, reverse=True)[: wanted.limit]


def free_title(tx: Transaction, title: str, mark: str, *, owner: str = "") -> str:
    """Return a title with a mark after it, numbered if another session of the owner has that title."""
    title = re.sub(rf" \({re.escape(mark)}(?: \d+)?\)$", "", title)
    number = 1
    while True:
        wanted = f"{title} ({mark} {number})" if number > 1 else f"{title} ({mark})"
        if not _is_taken(tx, wanted, owner):
            return wanted
        number += 1


def _is_taken(tx: Transaction, title: str, owner: str) -> bool:
    found = tx.sessions.find(SessionFilter(matching=title, owner=owner, archived=None, limit=1))
    return bool(found) and found[0].title.casefold() == title.casefold()
