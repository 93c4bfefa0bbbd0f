"""Event streams that can be read again from any point."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class StreamEvent(Struct, frozen=True):
    """Entry number ``seq`` of a stream; numbers count from 1 without gaps."""

    stream: str
    seq: int
    at: datetime
    kind: str
    payload: str


class Events(Protocol):
    """Append-only streams, one per run, session or other subject."""

    def append(self, stream: str, events: Sequence[tuple[str, str]]) -> int:
        """Add pairs of kind and payload and return the last number."""

    def after(self, stream: str, seq: int, limit: int = 1000) -> list[StreamEvent]:
        """Return the events after ``seq``, in order."""

    def drop(self, stream: str, through: int | None = None) -> None:
        """Delete a stream, or with ``through`` only its events up to that number; the others keep their numbers."""
