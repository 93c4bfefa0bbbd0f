"""Handoffs: a conversation asks to go on at another place, and one worker takes it there."""

from datetime import timedelta
from typing import Literal, Protocol, TypedDict

from msgspec import Struct

from talaria.core.ids import SessionId

HandoffStatus = Literal["pending", "running", "completed", "failed"]
CLAIM_LIFE = timedelta(seconds=120)
REQUEST_LIFE = timedelta(seconds=60)
"""How long a request stays pending: whoever made it has given up by then, or is dead."""
HANDOFF_LIFE = REQUEST_LIFE + CLAIM_LIFE
"""How long after the request a worker may still act on it."""
EXPIRED = f"no gateway took it within {REQUEST_LIFE.total_seconds():.0f} s"


class HandoffState(TypedDict):
    """How far a handoff has come; all ``None`` when none was ever asked for."""

    state: HandoffStatus | None
    platform: str | None
    error: str | None


class PendingHandoff(Struct, frozen=True):
    """A conversation that waits to be taken to a platform."""

    session_id: SessionId
    title: str
    platform: str


class HandoffRequests(Protocol):
    """The side that asks."""

    def request_handoff(self, session_id: SessionId, platform: str) -> bool:
        """Ask for a move; ``False`` while one is pending or running, and for an unknown session.

        A request expires: `REQUEST_LIFE` after it was made if it is still pending, `HANDOFF_LIFE` after it was made if
        it is running and its claim has lapsed. Then it counts as failed everywhere.
        """

    def get_handoff_state(self, session_id: SessionId) -> HandoffState | None:
        """Return how far it has come, or ``None`` for an unknown session."""

    def withdraw_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Fail what is pending or running on behalf of whoever asked; ``False`` if it has ended."""


class HandoffWork(Protocol):
    """The side that moves; a claim belongs to the worker whose store made it."""

    def list_pending_handoffs(self) -> list[PendingHandoff]:
        """Return the pending ones, oldest request first."""

    def list_lapsed_handoffs(self) -> list[PendingHandoff]:
        """Return those whose claimer is surely dead, or let the claim lapse, oldest request first."""

    def claim_handoff(self, session_id: SessionId, life: timedelta = CLAIM_LIFE) -> bool:
        """Take a pending or lapsed one that has not expired: of any number of claimers exactly one gets ``True``."""

    def complete_handoff(self, session_id: SessionId) -> bool:
        """Mark this worker's running handoff as completed; ``False`` if it is no longer its own."""

    def fail_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Mark a pending one, or this worker's running one, as failed; the reason is cut at 500 characters."""


class Handoffs(HandoffRequests, HandoffWork, Protocol):
    """Both sides of a handoff, as the store keeps it."""
