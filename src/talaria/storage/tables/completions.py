"""Results of background work that no turn has reported yet."""

from talaria.contracts.stores.completions import Completion
from talaria.core.ids import SessionId
from talaria.storage.tables.sql import Row, Sql, from_stamp


class CompletionsTable:
    """SQL implementation of `Completions`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, session_id: SessionId, source: str, external_id: str, payload: str) -> bool:
        """Store a completion; ``False`` if its source and external id are already stored."""
        added = self._sql.count(
            "INSERT INTO completions (session_id, source, external_id, payload, created_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (source, external_id) DO NOTHING",
            (session_id, source, external_id, payload, self._sql.now),
        )
        return added > 0

    def take(self, session_id: SessionId) -> list[Completion]:
        """Take all pending completions of a session, oldest first, each exactly once.

        The caller must store their report in the same transaction.
        """
        rows = self._sql.rows(
            "UPDATE completions SET taken_at = ? WHERE session_id = ? AND taken_at IS NULL"
            " RETURNING id, session_id, source, external_id, payload, created_at",
            (self._sql.now, session_id),
        )
        return sorted(map(_to_completion, rows), key=lambda completion: completion.id)

    def waiting(self) -> list[SessionId]:
        """Return the sessions with pending completions, longest waiting first."""
        rows = self._sql.rows(
            "SELECT session_id FROM completions WHERE taken_at IS NULL GROUP BY session_id ORDER BY min(id)"
        )
        return [row[0] for row in rows]


def _to_completion(row: Row) -> Completion:
    number, session_id, source, external_id, payload, created_at = row
    return Completion(
        id=number,
        session_id=session_id,
        source=source,
        external_id=external_id,
        payload=payload,
        created_at=from_stamp(created_at),
    )
