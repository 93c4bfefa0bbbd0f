"""What was said in a conversation and waits for its turn."""

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.core.messages import Message
from talaria.sessions.admitted import read_admitted, without_files
from talaria.sessions.lane import MIRROR


def waiting(tx: Transaction, session_id: SessionId) -> list[Message]:
    """Return what waits in the inbox of a conversation, in the order in which it will be answered."""
    unsettled = tx.inbox.unsettled(session_id)
    items = [item for item in unsettled if item.state == "waiting" and item.kind != MIRROR]
    return [without_files(read_admitted(item.payload), "comes along") for item in items]
