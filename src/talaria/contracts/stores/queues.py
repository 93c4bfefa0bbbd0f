"""Queues: inbox, forwarded updates, outbox, and event streams that can be read again from any point."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.stores.turns import Lease
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, TurnId, WorkerId

InboxState = Literal["waiting", "taken", "done"]
OutboxState = Literal["waiting", "sending", "sent", "failed"]


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

    def list_unsettled(self, session_id: SessionId | None = None) -> list[InboxItem]:
        """Return pending and running messages of a session, or of all, in order."""


class ForwardedUpdates(Protocol):
    """Updates on their way to another worker; they are deleted with their session."""

    def add(self, worker: WorkerId, session_id: SessionId, body: str) -> None:
        """Store an encoded update for a worker."""

    def take(self, worker: WorkerId) -> list[str]:
        """Remove the updates for a worker and return them, oldest first."""

    def workers(self) -> list[WorkerId]:
        """Return the workers that updates are stored for, in order."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message to deliver; ``key`` identifies it, and is the idempotency key on networks that have one."""

    key: str
    session_id: SessionId
    address: Address
    payload: str
    turn_id: TurnId | None = None


class OutboxItem(Struct, frozen=True, kw_only=True):
    """A message to deliver and its state."""

    id: int
    key: str
    session_id: SessionId
    address: Address
    payload: str
    turn_id: TurnId | None
    state: OutboxState
    attempts: int
    created_at: datetime
    doubtful: bool = False
    error: str = ""
    reference: str | None = None


class OutboxFilter(Struct, frozen=True, kw_only=True):
    """A filter for items by session or key; ``sent`` includes delivered ones.

    With a ``platform`` only items still to be sent there; ``limit`` is the maximum number.
    """

    session_id: SessionId | None = None
    key: str = ""
    platform: str = ""
    sent: bool = False
    limit: int | None = None


UNDELIVERED = OutboxFilter()


class Outbox(Protocol):
    """One queue per address: an item is sent after those before it."""

    def add(self, outgoing: Outgoing) -> OutboxItem | None:
        """Queue a message, or return ``None`` if this key was queued before."""

    def claim(self, platform: str, duration: timedelta, count: int = 16) -> list[OutboxItem]:
        """Mark due items as being sent by this worker and return them.

        An item whose sender died is returned again and is ``doubtful``: it may have been sent. That happens at once if
        the sender is certainly dead, a process of this machine that has ended, otherwise after ``duration``.
        """

    def mark_sent(self, item_id: int, reference: str) -> bool:
        """Record the network's reference; ``False`` if another worker has taken the item over."""

    def retry(self, item_id: int, not_before: datetime, error: str) -> bool:
        """Postpone the item; ``False`` if another worker has taken it over."""

    def fail(self, item_id: int, error: str) -> bool:
        """Give up on the item and keep its record; ``False`` if another worker has taken it over."""

    def requeue(self, item_id: int) -> OutboxItem | None:
        """Make a waiting or failed item due now and return it; ``None`` if it is being sent or was sent."""

    def drop(self, item_id: int) -> bool:
        """Delete an item that waits or has failed; ``False`` if it is being sent or was sent."""

    def find(self, criteria: OutboxFilter = UNDELIVERED) -> list[OutboxItem]:
        """Return matching items, oldest first; without a filter all unsent ones, including failed ones."""


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
