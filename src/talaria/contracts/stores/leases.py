"""Leases: which worker owns something for a while, with tokens that fence out a former owner."""

from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import WorkerId


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
