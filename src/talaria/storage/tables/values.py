"""Versioned values: of a session under a name, or under a key in a space."""

from collections.abc import Collection

from talaria.contracts.stores.values import ValueRow
from talaria.core.ids import SessionId
from talaria.storage.tables.sql import Sql, build_prefix_condition


class SessionValuesTable:
    """SQL implementation of `SessionValues`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def get(self, session_id: SessionId, name: str, item: str) -> ValueRow | None:
        """Return a value, or ``None``."""
        row = self._sql.row(f"SELECT value, version FROM session_values WHERE {_ONE}", (session_id, name, item))
        return ValueRow(*row) if row else None

    def put(self, session_id: SessionId, name: str, item: str, value: str) -> int:
        """Write a value and return its new version, starting at 1."""
        row = self._sql.row(
            "INSERT INTO session_values (session_id, name, item, value, version) VALUES (?, ?, ?, ?, 1)"
            " ON CONFLICT (session_id, name, item) DO UPDATE"
            " SET value = excluded.value, version = session_values.version + 1 RETURNING version",
            (session_id, name, item, value),
        )
        assert row is not None
        return int(row[0])

    def replace(self, session_id: SessionId, name: str, item: str, value: str, *, version: int) -> bool:
        """Write only if the value still has this version (0: does not exist); return whether it was written."""
        if version == 0:
            statement = (
                "INSERT INTO session_values (session_id, name, item, value, version) VALUES (?, ?, ?, ?, 1)"
                " ON CONFLICT (session_id, name, item) DO NOTHING"
            )
            return self._sql.count(statement, (session_id, name, item, value)) > 0
        statement = f"UPDATE session_values SET value = ?, version = version + 1 WHERE {_ONE} AND version = ?"
        return self._sql.count(statement, (value, session_id, name, item, version)) > 0

    def delete(self, session_id: SessionId, name: str, item: str) -> bool:
        """Delete a value; ``False`` if it does not exist."""
        return self._sql.count(f"DELETE FROM session_values WHERE {_ONE}", (session_id, name, item)) > 0

    def copy(self, source: SessionId, target: SessionId, names: Collection[str]) -> None:
        """Give a session all values that another has under these names."""
        self._sql.run(
            "INSERT INTO session_values (session_id, name, item, value, version) SELECT ?, name, item, value, 1"
            f" FROM session_values WHERE session_id = ? AND name IN ({', '.join('?' * len(names))})"
            " ON CONFLICT (session_id, name, item) DO UPDATE"
            " SET value = excluded.value, version = session_values.version + 1",
            (target, source, *names),
        )

    def of_session(self, session_id: SessionId, name: str) -> list[tuple[str, ValueRow]]:
        """Return the values of a session under a name with their items, ordered by item."""
        rows = self._sql.rows(
            "SELECT item, value, version FROM session_values WHERE session_id = ? AND name = ?", (session_id, name)
        )
        return [(item, ValueRow(value, version)) for item, value, version in sorted(rows)]

    def with_item(self, name: str, item: str) -> list[tuple[SessionId, ValueRow]]:
        """Return the values of all sessions under a name and an item, ordered by session."""
        rows = self._sql.rows(
            "SELECT session_id, value, version FROM session_values WHERE name = ? AND item = ?", (name, item)
        )
        return [(session_id, ValueRow(value, version)) for session_id, value, version in sorted(rows)]

    def of_all(self, name: str) -> list[tuple[SessionId, str, ValueRow]]:
        """Return the values of all sessions under a name, ordered by item and session."""
        rows = self._sql.rows("SELECT item, session_id, value, version FROM session_values WHERE name = ?", (name,))
        return [(session_id, item, ValueRow(value, version)) for item, session_id, value, version in sorted(rows)]


class NamedValuesTable:
    """SQL implementation of `NamedValues`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def get(self, space: str, key: str) -> ValueRow | None:
        """Return a value, or ``None``."""
        row = self._sql.row("SELECT value, version FROM named_values WHERE space = ? AND key = ?", (space, key))
        return ValueRow(*row) if row else None

    def put(self, space: str, key: str, value: str) -> int:
        """Write a value and return its new version, starting at 1."""
        row = self._sql.row(
            "INSERT INTO named_values (space, key, value, version) VALUES (?, ?, ?, 1) ON CONFLICT (space, key)"
            " DO UPDATE SET value = excluded.value, version = named_values.version + 1 RETURNING version",
            (space, key, value),
        )
        assert row is not None
        return int(row[0])

    def replace(self, space: str, key: str, value: str, *, version: int) -> bool:
        """Write only if the value still has this version (0: does not exist); return whether it was written."""
        if version == 0:
            statement = (
                "INSERT INTO named_values (space, key, value, version) VALUES (?, ?, ?, 1)"
                " ON CONFLICT (space, key) DO NOTHING"
            )
            return self._sql.count(statement, (space, key, value)) > 0
        statement = (
            "UPDATE named_values SET value = ?, version = version + 1 WHERE space = ? AND key = ? AND version = ?"
        )
        return self._sql.count(statement, (value, space, key, version)) > 0

    def delete(self, space: str, key: str) -> bool:
        """Delete a value; ``False`` if it does not exist."""
        return self._sql.count("DELETE FROM named_values WHERE space = ? AND key = ?", (space, key)) > 0

    def find(self, space: str, prefix: str) -> list[tuple[str, ValueRow]]:
        """Return the values of a space whose keys start with ``prefix``, ordered by key."""
        condition, values = build_prefix_condition(self._sql, "key", prefix)
        rows = self._sql.rows(
            f"SELECT key, value, version FROM named_values WHERE space = ? AND {condition}", (space, *values)
        )
        return [(key, ValueRow(value, version)) for key, value, version in sorted(rows)]


_ONE = "session_id = ? AND name = ? AND item = ?"
