"""Transcripts: an append-only log of messages per session."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Message


class StoredMessage(Struct, frozen=True):
    """A stored message; ``seq`` counts from 1 within the session, without gaps."""

    session_id: SessionId
    seq: int
    message: Message


class Messages(Protocol):
    """The messages of sessions, in stored order."""

    def append(self, session_id: SessionId, messages: Sequence[Message]) -> int:
        """Add messages at the end and return the ``seq`` of the last; raises `NotFound`."""

    def load(self, session_id: SessionId, *, after: int = 0, limit: int | None = None) -> list[StoredMessage]:
        """Return the transcript after ``after``, oldest first, including the history that a branch shares."""

    def last(self, session_id: SessionId, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages, oldest first."""

    def with_platform_id(self, session_id: SessionId, platform_message_id: str) -> StoredMessage | None:
        """Return the message with this id of a network."""
