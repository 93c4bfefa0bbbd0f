"""Numbered event streams for replay."""

from collections.abc import Sequence

from talaria.contracts.stores.events import StreamEvent
from talaria.storage.tables.sql import Sql, from_stamp


class EventsTable:
    """SQL implementation of `Events`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def append(self, stream: str, events: Sequence[tuple[str, str]]) -> int:
        """Append (kind, payload) pairs to a stream and return the last sequence number."""
        row = self._sql.row(
            "INSERT INTO streams (name, last_seq) VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
            " SET last_seq = streams.last_seq + excluded.last_seq RETURNING last_seq",
            (stream, len(events)),
        )
        assert row is not None
        last = int(row[0])
        self._sql.run_many(
            "INSERT INTO events (stream, seq, at, kind, payload) VALUES (?, ?, ?, ?, ?)",
            [
                (stream, seq, self._sql.now, kind, payload)
                for seq, (kind, payload) in enumerate(events, last - len(events) + 1)
            ],
        )
        return last

    def after(self, stream: str, seq: int, limit: int = 1000) -> list[StreamEvent]:
        """Return up to ``limit`` events with a sequence number above ``seq``, in order."""
        rows = self._sql.rows(
            "SELECT stream, seq, at, kind, payload FROM events WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?",
            (stream, seq, limit),
        )
        return [StreamEvent(name, number, from_stamp(at), kind, payload) for name, number, at, kind, payload in rows]

    def drop(self, stream: str, through: int | None = None) -> None:
        """Delete a stream, or with ``through`` only its events up to that number.

        The remaining events keep their numbers.
        """
        if through is not None:
            self._sql.run("DELETE FROM events WHERE stream = ? AND seq <= ?", (stream, through))
            return
        self._sql.run("DELETE FROM events WHERE stream = ?", (stream,))
        self._sql.run("DELETE FROM streams WHERE name = ?", (stream,))
