"""Last exchanges of a resumed session."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from talaria.commands.arguments import render_message
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import StoredMessage
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.runtime.turns import MIRROR, read_message
from talaria.sessions.branches import list_exchanges
from talaria.sessions.transcript_export import without_program_messages

_MAX_EXCHANGES = 3
_RECENT_MESSAGES = 60
_TEXT_LIMIT = 600
_LAST_TEXT_LIMIT = 3_000


class Exchange(Struct, frozen=True):
    """Message with its author, if known, and the reply as Markdown; empty while there is none."""

    text: str
    author: str = ""
    reply: str = ""


def last_exchanges(tx: Transaction, session_id: SessionId) -> list[Exchange]:
    """Return the last exchanges, oldest first, then pending messages; long replies are cut."""
    messages = without_program_messages(tx.messages.last(session_id, _RECENT_MESSAGES))
    begun = list_exchanges(messages)[-_MAX_EXCHANGES:]
    ends = [*(one.seq for one in begun), messages[-1].seq + 1] if begun else []
    found = [
        _read_exchange(one, [later for later in messages if first < later.seq < end], last=one is begun[-1])
        for one, (first, end) in zip(begun, pairwise(ends), strict=True)
    ]
    waiting = [item for item in tx.inbox.unsettled(session_id) if item.state == "waiting" and item.kind != MIRROR]
    return [*found, *(_build_exchange(read_message(item.payload)) for item in waiting)]


def _read_exchange(begun: StoredMessage, later: Sequence[StoredMessage], *, last: bool) -> Exchange:
    limit = _LAST_TEXT_LIMIT if last else _TEXT_LIMIT
    replies = [one.message for one in later if one.message.role == "assistant"]
    texts = [render_message(reply, limit) for reply in replies if _get_text(reply).strip()]
    return _build_exchange(begun.message, texts[-1] if texts else "")


def _build_exchange(message: Message, reply: str = "") -> Exchange:
    return Exchange(_get_text(message), message.author, reply)


def _get_text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def is_resumable(tx: Transaction, session_id: SessionId) -> bool:
    """Return whether a session has messages and hasn't moved to a chat."""
    session = tx.sessions.get(session_id)
    return session is not None and session.message_count > 0 and not tx.bindings.of_session(session_id)


def format_resume_hint(session_id: SessionId) -> str:
    """Return a sentence on how to resume a session."""
    return f"Resume this conversation with: talaria chat -r {session_id}"
