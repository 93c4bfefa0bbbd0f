"""The outbox: replies to deliver, with a destination fixed when they were written."""

from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import SessionId, TurnId

OutboxState = Literal["waiting", "sending", "sent", "failed"]


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

    def sent(self, item_id: int, reference: str) -> bool:
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
