"""Leases: which worker owns something for a while, with tokens that fence out a former owner."""

from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import WorkerId


class Lease(Struct, frozen=True):
    """``owner`` holds ``name`` until ``expires_at``; ``token`` grows with each change of hands."""

    name: str
    owner: WorkerId
    token: int
    expires_at: datetime


class Leases(Protocol):
    """Ownership that lapses by itself when its owner dies."""

    def acquire(self, name: str, duration: timedelta) -> Lease | None:
        """Take what is free or lapsed, or ``None``: also when this worker holds it already."""

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Hold on for longer, or raise `LeaseLost`."""

    def check(self, lease: Lease) -> None:
        """Raise `LeaseLost` unless this lease is still the one in force.

        The rest of the transaction is safe behind it: nobody can take the lease over before it commits.
        """

    def release(self, lease: Lease) -> None:
        """Give it up; a lease that was lost meanwhile stays with its new owner."""

    def take_over(self, lease: Lease, duration: timedelta) -> Lease | None:
        """Take a lease from an owner that is surely dead, or ``None`` if somebody else was quicker."""

    def get(self, name: str) -> Lease | None:
        """Return who holds a name now, or ``None`` when it is free or lapsed."""
