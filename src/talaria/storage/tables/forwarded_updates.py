"""Updates that one worker has stored for another."""

from talaria.core.ids import SessionId, WorkerId, new_id
from talaria.storage.tables.sql import Sql


class ForwardedUpdatesTable:
    """SQL implementation of `ForwardedUpdates`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, worker: WorkerId, session_id: SessionId, body: str) -> None:
        """Store an encoded update for a worker."""
        self._sql.run(
            "INSERT INTO forwarded_updates (id, worker, session_id, body) VALUES (?, ?, ?, ?)",
            (new_id(), worker, session_id, body),
        )

    def take(self, worker: WorkerId) -> list[str]:
        """Remove the updates for a worker and return them, oldest first."""
        rows = self._sql.rows("DELETE FROM forwarded_updates WHERE worker = ? RETURNING id, body", (worker,))
        return [body for _, body in sorted(rows)]

    def workers(self) -> list[WorkerId]:
        """Return the workers that updates are stored for, in order."""
        return sorted(WorkerId(row[0]) for row in self._sql.rows("SELECT DISTINCT worker FROM forwarded_updates"))
