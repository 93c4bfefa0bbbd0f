"""What to call a conversation, so that people know which one is meant."""

import re

from msgspec import structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter

_LOOKED_AT = 3
_LONGEST_OPENING = 80
_MOST_OPENINGS = 5_000  # some 30 µs each


def opening(tx: Transaction, session: Session) -> str:
    """Return the first words of a conversation without a title, to tell it from others."""
    if session.title or not session.message_count:
        return ""
    first = tx.messages.load(session.id, limit=_LOOKED_AT)
    said = next((one.message.text for one in first if one.message.role == "user"), "")
    return " ".join(said[: 4 * _LONGEST_OPENING].split())[:_LONGEST_OPENING]


def find_by_name(tx: Transaction, wanted: SessionFilter) -> list[Session]:
    """Return the conversations that fit, last used first; ``matching`` fits what lists show as their title too.

    That is the title or, where there is none, the opening. An exact id or title is returned alone.
    """
    found = tx.sessions.find(wanted)
    name = wanted.matching.casefold()
    if not name or any(name in (one.id, one.title.casefold()) for one in found):
        return found
    untitled = tx.sessions.find(structs.replace(wanted, matching="", titled=False, limit=_MOST_OPENINGS))
    known = {one.id for one in found}
    opened = [one for one in untitled if one.id not in known and name in opening(tx, one).casefold()]
    return sorted([*found, *opened], key=lambda one: one.updated_at, reverse=True)[: wanted.limit]


def free_title(tx: Transaction, title: str, mark: str, *, owner: str = "") -> str:
    """Return a title with a remark behind it, numbered where another conversation of its owner is called so already."""
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
