"""Completions: results of background work, stored until their session has processed them."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId


class Completion(Struct, frozen=True, kw_only=True):
    """Background work ``source``/``external_id`` has ended, or has something to report."""

    id: int
    session_id: SessionId
    source: str
    external_id: str
    payload: str
    created_at: datetime


class Completions(Protocol):
    """Pending completions, in the order in which they happened."""

    def add(self, session_id: SessionId, source: str, external_id: str, payload: str) -> bool:
        """Record a completion; ``False`` if it was recorded before."""

    def take(self, session_id: SessionId) -> list[Completion]:
        """Return pending completions, each once; the same transaction must also deliver them."""

    def waiting(self) -> list[SessionId]:
        """Return the sessions with pending completions, longest waiting first."""
