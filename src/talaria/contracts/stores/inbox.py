"""The inbox: messages waiting for a session, and updates for the worker that has their chat."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.stores.leases import Lease
from talaria.core.ids import SessionId, TurnId, WorkerId

InboxState = Literal["waiting", "taken", "done"]


class Arrival(Struct, frozen=True, kw_only=True):
    """A message to add; ``source`` and ``external_id`` together identify a redelivery."""

    session_id: SessionId
    source: str
    external_id: str
    payload: str
    kind: str = "message"
    priority: int = 0


class InboxItem(Struct, frozen=True, kw_only=True):
    """A stored inbox message and its state."""

    id: int
    session_id: SessionId
    source: str
    external_id: str
    payload: str
    kind: str
    priority: int
    state: InboxState
    received_at: datetime
    turn_id: TurnId | None = None


class SessionClaim(Struct, frozen=True):
    """This worker's ownership of a session's inbox, valid while its lease holds."""

    session_id: SessionId
    lease: Lease


class Inbox(Protocol):
    """One queue per session: higher priority first, then first come, first served."""

    def add(self, arrival: Arrival) -> InboxItem | None:
        """Add a message, or return ``None`` if it was added before."""

    def list_unowned(self, most: int) -> list[SessionId]:
        """Return sessions with pending messages and no owner, longest waiting first."""

    def take(self, claim: SessionClaim, turn_id: TurnId, count: int = 1) -> list[InboxItem]:
        """Take the next message of the claimed session into a turn; raises `LeaseLost`."""

    def settle(self, ids: Sequence[int]) -> None:
        """Mark messages as processed."""

    def put_back(self, turn_id: TurnId) -> int:
        """Return the messages of a dead turn to the queue, and return their number."""

    def unsettled(self, session_id: SessionId | None = None) -> list[InboxItem]:
        """Return pending and running messages of a session, or of all, in order."""


class ForwardedUpdates(Protocol):
    """Updates on their way to another worker; they are deleted with their session."""

    def add(self, worker: WorkerId, session_id: SessionId, body: str) -> None:
        """Store an encoded update for a worker."""

    def take(self, worker: WorkerId) -> list[str]:
        """Remove the updates for a worker and return them, oldest first."""

    def workers(self) -> list[WorkerId]:
        """Return the workers that updates are stored for, in order."""
