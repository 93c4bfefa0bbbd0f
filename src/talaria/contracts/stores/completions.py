"""Completions: results of background work, kept until the conversation that asked has heard of them."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId


class Completion(Struct, frozen=True, kw_only=True):
    """Background work ``source``/``external_id`` came to an end, or has something to report."""

    id: int
    session_id: SessionId
    source: str
    external_id: str
    payload: str
    created_at: datetime


class Completions(Protocol):
    """What waits to be told, in the order in which it happened."""

    def add(self, session_id: SessionId, source: str, external_id: str, payload: str) -> bool:
        """Record an end; ``False`` when the same one was recorded before."""

    def take(self, session_id: SessionId) -> list[Completion]:
        """Hand out what waits, each once: the transaction that takes it must also tell it."""

    def waiting(self) -> list[SessionId]:
        """Return the conversations that have something to be told, longest waiting first."""
