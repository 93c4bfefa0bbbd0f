"""Turns, their steps and the leases of their workers, so that work can resume after a crash."""

from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import SessionId, TurnId, WorkerId

TurnState = Literal["running", "answered", "stopped", "failed", "out_of_budget"]


class Lease(Struct, frozen=True):
    """A lease: ``owner`` holds ``name`` until ``expires_at``; ``token`` grows with each change of owner."""

    name: str
    owner: WorkerId
    token: int
    expires_at: datetime


class Leases(Protocol):
    """Ownership that expires by itself when its owner dies."""

    def acquire(self, name: str, duration: timedelta) -> Lease | None:
        """Acquire a free or expired lease, or return ``None``, also if this worker already holds it."""

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease, or raise `LeaseLost`."""

    def check(self, lease: Lease) -> None:
        """Raise `LeaseLost` unless this lease is still in force.

        The rest of the transaction is safe: nobody can take over the lease before it commits.
        """

    def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost stays with its new owner."""

    def take_over(self, lease: Lease, duration: timedelta) -> Lease | None:
        """Take over the lease of an owner that is certainly dead, or return ``None`` if another worker was faster."""

    def get(self, name: str) -> Lease | None:
        """Return the current lease of a name, or ``None`` if it is free or expired."""


class Turn(Struct, frozen=True, kw_only=True):
    """One turn of a session."""

    id: TurnId
    session_id: SessionId
    worker: WorkerId
    state: TurnState
    started_at: datetime
    ended_at: datetime | None = None
    error: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """A model call or a tool call; without an ``ended_at`` it was started and its outcome is unknown."""

    turn_id: TurnId
    number: int
    kind: str
    name: str
    request: str
    started_at: datetime
    ended_at: datetime | None = None
    result: str | None = None


class Turns(Protocol):
    """All turns and their steps."""

    def begin(self, session_id: SessionId, turn_id: TurnId) -> Turn:
        """Record that this worker has started a turn."""

    def end(self, turn_id: TurnId, state: TurnState, error: str = "") -> bool:
        """Record how a running turn ended; ``False`` if it had already ended."""

    def find(
        self, session_id: SessionId | None = None, *, running: bool = False, limit: int | None = None
    ) -> list[Turn]:
        """Return turns, oldest first: of one session or of all, and only unfinished ones if ``running``.

        With a ``limit`` these are the last ones.
        """

    def begin_step(
        self, turn_id: TurnId, kind: str, name: str, request: str, at: datetime | None = None, result: str | None = None
    ) -> int:
        """Insert a step, started now or at ``at``, and return its number within the turn.

        With a ``result`` it has ended already.
        """

    def end_step(self, turn_id: TurnId, number: int, result: str, at: datetime | None = None) -> None:
        """Record the result of a step."""

    def steps(self, turn_id: TurnId) -> list[Step]:
        """Return the steps of a turn in order."""
