"""What was said in a conversation and waits for its turn."""

import msgspec

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.core.messages import Message

_decode = msgspec.json.Decoder(Message).decode


def waiting(tx: Transaction, session_id: SessionId) -> list[Message]:
    """Return what waits in the inbox of a conversation, in the order in which it will be answered."""
    return [_decode(item.payload) for item in tx.inbox.unsettled(session_id) if item.state == "waiting"]
