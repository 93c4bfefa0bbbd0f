"""Event streams that can be read again from any point."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class Event(Struct, frozen=True):
    """Entry number ``seq`` of a stream; numbers count from 1 without gaps."""

    stream: str
    seq: int
    at: datetime
    kind: str
    payload: str


class Events(Protocol):
    """Append-only streams, one for each run, session or whatever else is followed."""

    def append(self, stream: str, events: Sequence[tuple[str, str]]) -> int:
        """Add pairs of kind and payload and return the last number."""

    def after(self, stream: str, seq: int, limit: int = 1000) -> list[Event]:
        """Return what came behind ``seq``, in order."""

    def drop(self, stream: str, through: int | None = None) -> None:
        """Forget a stream; with ``through`` only what it holds up to that number, and the others keep theirs."""
