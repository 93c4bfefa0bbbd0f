"""The outbox: replies on their way, with a destination that was fixed when they were written."""

from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import SessionId, TurnId

OutboxState = Literal["waiting", "sending", "sent", "failed"]


class Outgoing(Struct, frozen=True, kw_only=True):
    """Something to deliver; ``key`` is its identity, and a network's idempotency key where it has one."""

    key: str
    session_id: SessionId
    address: Address
    payload: str
    turn_id: TurnId | None = None


class OutboxItem(Struct, frozen=True, kw_only=True):
    """Something to deliver, and how far it has come."""

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
    """Which items: of a conversation, or the one of a key; ``sent`` lets those be found too that are out.

    With a ``platform`` only those that are still to go out there; ``limit`` is how many at most.
    """

    session_id: SessionId | None = None
    key: str = ""
    platform: str = ""
    sent: bool = False
    limit: int | None = None


UNDELIVERED = OutboxFilter()


class Outbox(Protocol):
    """One line for each address: an item goes out when those before it have."""

    def add(self, outgoing: Outgoing) -> OutboxItem | None:
        """Queue a delivery, or return ``None`` when this key was queued before."""

    def claim(self, platform: str, duration: timedelta, count: int = 16) -> list[OutboxItem]:
        """Mark due items as being sent by this worker and return them.

        An item whose sender died comes again and is ``doubtful``: it may have gone out. It comes at once if the
        sender is surely dead, a process of this machine that is gone, and else after ``duration``.
        """

    def sent(self, item_id: int, reference: str) -> bool:
        """Record the network's reference; ``False`` if another worker has taken the item over."""

    def retry(self, item_id: int, not_before: datetime, error: str) -> bool:
        """Let the item wait; ``False`` if another worker has taken it over."""

    def fail(self, item_id: int, error: str) -> bool:
        """Give the item up; it stays on record. ``False`` if another worker has taken it over."""

    def find(self, wanted: OutboxFilter = UNDELIVERED) -> list[OutboxItem]:
        """Return what fits, oldest first: without a filter what is not sent yet, failed ones included."""
