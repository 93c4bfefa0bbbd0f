"""Small values by key."""

from talaria.contracts.stores.state import Entry
from talaria.storage.sql import Sql, begins


class StateTable:
    """Implements `State`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        row = self._sql.row("SELECT key, value, version FROM state WHERE key = ?", (key,))
        return Entry(*row) if row else None

    def put(self, key: str, value: str) -> int:
        """Write a value and return its new version."""
        row = self._sql.row(
            "INSERT INTO state (key, value, version, updated_at) VALUES (?, ?, 1, ?) ON CONFLICT (key) DO UPDATE"
            " SET value = excluded.value, version = state.version + 1, updated_at = excluded.updated_at"
            " RETURNING version",
            (key, value, self._sql.now),
        )
        assert row is not None
        return int(row[0])

    def replace(self, key: str, value: str, *, version: int) -> bool:
        """Write only if the entry still has this version (0: is not there); tell whether it was."""
        if version == 0:
            written = self._sql.count(
                "INSERT INTO state (key, value, version, updated_at) VALUES (?, ?, 1, ?) ON CONFLICT (key) DO NOTHING",
                (key, value, self._sql.now),
            )
        else:
            written = self._sql.count(
                "UPDATE state SET value = ?, version = version + 1, updated_at = ? WHERE key = ? AND version = ?",
                (value, self._sql.now, key, version),
            )
        return written > 0

    def delete(self, key: str) -> bool:
        """Forget a key."""
        return self._sql.count("DELETE FROM state WHERE key = ?", (key,)) > 0

    def with_prefix(self, prefix: str) -> list[Entry]:
        """Return the entries whose keys begin so, sorted by key."""
        condition, values = begins(self._sql, "key", prefix)
        rows = self._sql.rows(f"SELECT key, value, version FROM state WHERE {condition}", values)
        return sorted((Entry(*row) for row in rows), key=lambda entry: entry.key)
