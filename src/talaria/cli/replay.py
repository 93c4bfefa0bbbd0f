"""The last exchanges of a conversation that is opened again."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from talaria.commands.markdown import readable
from talaria.contracts.store import Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.sessions.admitted import read_message
from talaria.sessions.branching import exchanges
from talaria.sessions.lane import MIRROR
from talaria.sessions.transcripts import said_by_people

_EXCHANGES = 3
_LOOKED_BACK = 60
_LONGEST = 600
_LONGEST_LAST = 3_000


class Exchange(Struct, frozen=True):
    """What was said, by whom if that is known, and the reply as Markdown; empty while there is none."""

    said: str
    author: str = ""
    reply: str = ""


def last_exchanges(tx: Transaction, session_id: SessionId) -> list[Exchange]:
    """Return the last exchanges, oldest first, then what was sent and still waits for a turn; long replies are cut."""
    messages = said_by_people(tx.messages.last(session_id, _LOOKED_BACK))
    begun = exchanges(messages)[-_EXCHANGES:]
    ends = [*(one.seq for one in begun), messages[-1].seq + 1] if begun else []
    found = [
        _exchange(one, [later for later in messages if first < later.seq < end], last=one is begun[-1])
        for one, (first, end) in zip(begun, pairwise(ends), strict=True)
    ]
    waiting = [item for item in tx.inbox.unsettled(session_id) if item.state == "waiting" and item.kind != MIRROR]
    return [*found, *(_exchange_of(read_message(item.payload)) for item in waiting)]


def _exchange(begun: StoredMessage, later: Sequence[StoredMessage], *, last: bool) -> Exchange:
    limit = _LONGEST_LAST if last else _LONGEST
    replies = [one.message for one in later if one.message.role == "assistant"]
    texts = [readable(reply, limit) for reply in replies if _text_of(reply).strip()]
    return _exchange_of(begun.message, texts[-1] if texts else "")


def _exchange_of(message: Message, reply: str = "") -> Exchange:
    return Exchange(_text_of(message), message.author, reply)


def _text_of(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def has_messages(tx: Transaction, session_id: SessionId) -> bool:
    """Tell whether anything was said in a conversation, so that it can be resumed."""
    session = tx.sessions.get(session_id)
    return session is not None and session.message_count > 0


def resume_hint(session_id: SessionId) -> str:
    """Return how to come back to a conversation."""
    return f"Resume this conversation with: talaria chat -r {session_id}"
