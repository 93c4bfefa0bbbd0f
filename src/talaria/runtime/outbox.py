"""Outbox rows for replies and notices; delivery splits them to fit the network."""

import msgspec
from msgspec import structs

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import OutboxItem, Outgoing
from talaria.contracts.turns import TurnResult
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.core.messages import SILENT

STOPPED = "Stopped."
_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Content)


def queue_reply(
    tx: Transaction, session_id: SessionId, turn_id: TurnId, route: ReplyRoute, content: Content
) -> OutboxItem | None:
    """Queue the final reply of a turn, once; previews sent during the turn are turned into it.

    Its key is the turn's id, and ``<turn_id>:<n>`` is the key of its piece number n on the network.
    """
    answer = structs.replace(content, reply_to=content.reply_to or route.reply_to)
    outgoing = Outgoing(
        key=turn_id,
        session_id=session_id,
        address=route.address,
        payload=_encode(answer).decode(),
        turn_id=turn_id,
    )
    return _add(tx, outgoing)


def queue_turn_result(tx: Transaction, result: TurnResult, footer: str = "") -> OutboxItem | None:
    """Queue the result of a turn for its route, with a line below it if ``footer`` is given.

    Returns ``None`` if the turn has no route, or if the agent chose to be silent.
    """
    if result.route is None:
        return None
    text = render_turn_end(result.end)
    if text.strip() == SILENT:
        return None
    content = Content(text=f"{text}\n\n{footer}" if footer else text, reply_to=result.route.reply_to)
    return queue_reply(tx, result.session_id, result.turn_id, result.route, content)


def render_turn_end(end: TurnEnd) -> str:
    """Return the text that reports the end of a turn."""
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
    """Queue a message that isn't a turn's reply, for example command output; once per key."""
    outgoing = Outgoing(key=key or new_id(), session_id=session_id, address=address, payload=_encode(content).decode())
    return _add(tx, outgoing)


def outbox_topic(platform: str) -> str:
    """Return the topic notified when a message is queued for a network."""
    return f"outbox:{platform}"


def _add(tx: Transaction, outgoing: Outgoing) -> OutboxItem | None:
    item = tx.outbox.add(outgoing)
    if item is not None:
        tx.notify(outbox_topic(outgoing.address.platform))
    return item


def requeue_outgoing(tx: Transaction, item_id: int) -> bool:
    """Deliver an undelivered message now; ``False`` if it is being sent or was sent."""
    item = tx.outbox.requeue(item_id)
    if item is not None:
        tx.notify(outbox_topic(item.address.platform))
    return item is not None


def read_content(payload: str) -> Content:
    """Decode the payload of an outbox item, or raise `msgspec.DecodeError`."""
    return _decoder.decode(payload)
