"""Leases with monotonically increasing fencing tokens."""

from datetime import timedelta

from talaria.contracts.stores.leases import Lease
from talaria.core.errors import LeaseLost
from talaria.storage.tables.sql import Sql, from_stamp, to_span


class LeasesTable:
    """SQL implementation of `Leases`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def acquire(self, name: str, duration: timedelta) -> Lease | None:
        """Acquire a free or expired lease; ``None`` if it is held, even by this worker."""
        expires_at = self._sql.now + to_span(duration)
        row = self._sql.row(
            "INSERT INTO leases (name, owner, token, expires_at) VALUES (?, ?, 1, ?) ON CONFLICT (name) DO UPDATE"
            " SET owner = excluded.owner, token = leases.token + 1, expires_at = excluded.expires_at"
            " WHERE leases.expires_at <= ? RETURNING token",
            (name, self._sql.worker, expires_at, self._sql.now),
        )
        return Lease(name, self._sql.worker, row[0], from_stamp(expires_at)) if row else None

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease, even an expired one; raises `LeaseLost` if it was released or acquired again."""
        expires_at = self._sql.now + to_span(duration)
        renewed = self._sql.count(
            "UPDATE leases SET expires_at = ? WHERE name = ? AND token = ? AND owner = ?",
            (expires_at, lease.name, lease.token, lease.owner),
        )
        if not renewed:
            raise LeaseLost(f"{lease.name} belongs to another worker now.")
        return Lease(lease.name, lease.owner, lease.token, from_stamp(expires_at))

    def check(self, lease: Lease) -> None:
        """Lock the lease's row; raises `LeaseLost` if the lease was released or acquired again.

        The expiry time is not checked: an expired lease that no worker has acquired still passes.
        """
        held = self._sql.row(
            f"SELECT 1 FROM leases WHERE name = ? AND token = ? AND owner = ?{self._sql.locked}",
            (lease.name, lease.token, lease.owner),
        )
        if not held:
            raise LeaseLost(f"{lease.name} belongs to another worker now.")

    def release(self, lease: Lease) -> None:
        """Release a lease; no effect if it now belongs to another worker."""
        self._sql.run(
            "UPDATE leases SET owner = '', expires_at = 0 WHERE name = ? AND token = ? AND owner = ?",
            (lease.name, lease.token, lease.owner),
        )

    def take_over(self, lease: Lease, duration: timedelta) -> Lease | None:
        """Take the lease of a dead owner; ``None`` if its token has changed.

        The caller must know that the owner is dead: the expiry time is not checked.
        """
        expires_at = self._sql.now + to_span(duration)
        row = self._sql.row(
            "UPDATE leases SET owner = ?, token = token + 1, expires_at = ? WHERE name = ? AND token = ?"
            " RETURNING token",
            (self._sql.worker, expires_at, lease.name, lease.token),
        )
        return Lease(lease.name, self._sql.worker, row[0], from_stamp(expires_at)) if row else None

    def get(self, name: str) -> Lease | None:
        """Return the current lease on a name, or ``None`` if it is free or expired."""
        row = self._sql.row(
            "SELECT owner, token, expires_at FROM leases WHERE name = ? AND expires_at > ?", (name, self._sql.now)
        )
        return Lease(name, row[0], row[1], from_stamp(row[2])) if row else None
