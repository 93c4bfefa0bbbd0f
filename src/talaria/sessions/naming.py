"""What to call a conversation, so that people know which one is meant."""

import re

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter

_LOOKED_AT = 3
_LONGEST_OPENING = 80


def opening(tx: Transaction, session: Session) -> str:
    """Return the first words of a conversation without a title, to tell it from others."""
    if session.title or not session.message_count:
        return ""
    first = tx.messages.load(session.id, limit=_LOOKED_AT)
    said = next((one.message.text for one in first if one.message.role == "user"), "")
    return " ".join(said[: 4 * _LONGEST_OPENING].split())[:_LONGEST_OPENING]


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
