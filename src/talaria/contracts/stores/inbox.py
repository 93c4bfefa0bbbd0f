"""The inbox: what arrived for a conversation and is not worked off yet."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.stores.leases import Lease
from talaria.core.ids import SessionId, TurnId

InboxState = Literal["waiting", "taken", "done"]


class Arrival(Struct, frozen=True, kw_only=True):
    """Something to put in: ``source`` and ``external_id`` together recognise a redelivery."""

    session_id: SessionId
    source: str
    external_id: str
    payload: str
    kind: str = "message"
    priority: int = 0


class InboxItem(Struct, frozen=True, kw_only=True):
    """Something that arrived, and how far it has come."""

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
    """This worker owns the lane of a conversation for as long as the lease holds."""

    session_id: SessionId
    lease: Lease


class Inbox(Protocol):
    """One waiting line for each conversation: higher priority first, then first come, first served."""

    def add(self, arrival: Arrival) -> InboxItem | None:
        """Put something in, or return ``None`` for what came before."""

    def unowned(self, most: int) -> list[SessionId]:
        """Return conversations in which something waits and which have no owner, longest waiting first."""

    def take(self, claim: SessionClaim, turn_id: TurnId, count: int = 1) -> list[InboxItem]:
        """Hand out what is next in the claimed conversation, as part of a turn; raises `LeaseLost`."""

    def settle(self, ids: Sequence[int]) -> None:
        """Mark as worked off."""

    def put_back(self, turn_id: TurnId) -> int:
        """Make what a dead turn had taken wait again, and return how much that was."""

    def unsettled(self, session_id: SessionId | None = None) -> list[InboxItem]:
        """Return what waits and what is being worked on in a conversation, or in all of them, in order."""
