"""Versioned values by key."""

from talaria.contracts.stores.key_value import KeyValueEntry
from talaria.storage.tables.sql import Sql, build_prefix_condition


class KeyValueTable:
    """SQL implementation of `KeyValues`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def get(self, key: str) -> KeyValueEntry | None:
        """Return the entry of a key, or ``None``."""
        row = self._sql.row("SELECT key, value, version FROM state WHERE key = ?", (key,))
        return KeyValueEntry(*row) if row else None

    def put(self, key: str, value: str) -> int:
        """Write a value and return its new version, starting at 1."""
        row = self._sql.row(
            "INSERT INTO state (key, value, version, updated_at) VALUES (?, ?, 1, ?) ON CONFLICT (key) DO UPDATE"
            " SET value = excluded.value, version = state.version + 1, updated_at = excluded.updated_at"
            " RETURNING version",
            (key, value, self._sql.now),
        )
        assert row is not None
        return int(row[0])

    def replace(self, key: str, value: str, *, version: int) -> bool:
        """Write a value only if the entry still has this version; return whether it was written.

        Version 0 means that the key must not exist.
        """
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
        """Delete a key; ``False`` if it does not exist."""
        return self._sql.count("DELETE FROM state WHERE key = ?", (key,)) > 0

    def with_prefix(self, prefix: str) -> list[KeyValueEntry]:
        """Return the entries whose key starts with ``prefix``, sorted by key."""
        condition, values = build_prefix_condition(self._sql, "key", prefix)
        rows = self._sql.rows(f"SELECT key, value, version FROM state WHERE {condition}", values)
        return sorted((KeyValueEntry(*row) for row in rows), key=lambda entry: entry.key)
