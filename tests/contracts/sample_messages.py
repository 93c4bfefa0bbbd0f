"""Short constructors and views of messages."""

from datetime import datetime

from talaria.contracts.stores.sessions import StoredMessage
from talaria.core.messages import Message, Role, Text
from talaria.testing.clock import NOON


def text_message(text: str, role: Role = "user", at: datetime = NOON) -> Message:
    """Return a message with one text part."""
    return Message(role=role, parts=(Text(text),), at=at)


def texts(messages: list[StoredMessage]) -> list[tuple[int, str]]:
    """Return the number and the text of each message."""
    return [(stored.seq, stored.message.text) for stored in messages]
