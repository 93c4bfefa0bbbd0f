"""What is to be said in a chat, put into the outbox; delivery cuts it into pieces that the network takes."""

import msgspec
from msgspec import structs

from talaria.contracts.follower import Ending
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.outbox import OutboxItem, Outgoing
from talaria.core.addresses import Address, Route
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId, new_id

OUTBOX = "outbox"  # the topic of hints that something was put in
STOPPED = "Stopped."
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Content)


def queue_reply(
    tx: Transaction, session_id: SessionId, turn_id: TurnId, route: Route, content: Content
) -> OutboxItem | None:
    """Queue what a turn says in the end, once; messages that showed it while it grew become it.

    Its key is the turn's id, and ``<turn_id>:<n>`` is the key of its piece number n on the network.
    """
    answer = structs.replace(content, reply_to=content.reply_to or route.reply_to)
    return tx.outbox.add(
        Outgoing(
            key=turn_id,
            session_id=session_id,
            address=route.address,
            payload=_encode(answer).decode(),
            turn_id=turn_id,
        )
    )


def queue_end(tx: Transaction, ending: Ending, text: str = "") -> OutboxItem | None:
    """Queue what a turn said, for the place from which the question came; ``text`` is that with what goes along."""
    if ending.route is None:
        return None
    content = Content(text=text or words_of(ending.end), reply_to=ending.route.reply_to)
    return queue_reply(tx, ending.session_id, ending.turn_id, ending.route, content)


def words_of(end: TurnEnd) -> str:
    """Return what whoever waits for the end of a turn is told."""
    match end:
        case TurnAnswered(text):
            return text or "(I have nothing to say to that.)"
        case TurnFailed(advice=text) | TurnOutOfBudget(text=text):
            return text
        case TurnStopped():
            return STOPPED


def queue_notice(
    tx: Transaction, session_id: SessionId, address: Address, content: Content, key: str = ""
) -> OutboxItem | None:
    """Queue something that is not the reply of a turn: what a command shows, a question, news; once for each key."""
    outgoing = Outgoing(key=key or new_id(), session_id=session_id, address=address, payload=_encode(content).decode())
    return tx.outbox.add(outgoing)


def read_content(payload: str) -> Content:
    """Return what an item of the outbox says, or raise `msgspec.DecodeError`."""
    return _decoder.decode(payload)
