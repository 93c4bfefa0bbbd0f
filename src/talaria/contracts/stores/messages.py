"""Transcripts: an append-only log of messages for each conversation."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Message


class StoredMessage(Struct, frozen=True):
    """A message and its place: ``seq`` counts from 1 within the conversation, without gaps."""

    session_id: SessionId
    seq: int
    message: Message


class Messages(Protocol):
    """What was said, in the order in which it was stored."""

    def append(self, session_id: SessionId, messages: Sequence[Message]) -> int:
        """Add messages at the end and return the ``seq`` of the last; raises `NotFound`."""

    def load(self, session_id: SessionId, *, after: int = 0, limit: int | None = None) -> list[StoredMessage]:
        """Return the transcript behind ``after``, oldest first, with the past that a branch shares."""

    def last(self, session_id: SessionId, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages, oldest first."""

    def with_platform_id(self, session_id: SessionId, platform_message_id: str) -> StoredMessage | None:
        """Return the message that a network knows by this id."""
