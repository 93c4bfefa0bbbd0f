"""Schemas of a PostgreSQL server for tests that need an empty store, but not a new one.

Creating all tables takes the server 65 ms, emptying them a few. A schema is reused only if a test left it with
exactly the usual tables and no process uses it.
"""

import psycopg
from psycopg import sql
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.core.ids import new_id

_STRUCTURE = """
SELECT md5(string_agg(
    concat_ws(' ', relname, relkind, relpersistence, attname, atttypid, attnotnull), ',' ORDER BY relname, attnum
))
FROM pg_class LEFT JOIN pg_attribute ON attrelid = pg_class.oid WHERE relnamespace = to_regnamespace(%s)
"""
_USERS = "SELECT 1 FROM pg_locks JOIN pg_class ON relation = pg_class.oid WHERE relnamespace = to_regnamespace(%s)"
_CONTENTS = (
    "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'S')"
)
_VERSION = "schema_version"


class SchemaPool:
    """Empty schemas of one server, for one process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._raw = psycopg.connect(url, autocommit=True)
        self._raw.execute("SET session_replication_role = replica")  # rows are deleted in any order
        self._free: list[StoreLocation] = []
        first = self._create()
        self._structure = self._read_structure(first)
        self._tables, self._sequences = self._read_contents(first)
        self._free.append(first)

    def take(self) -> StoreLocation:
        """Return a schema with all tables and no rows."""
        return self._free.pop() if self._free else self._create()

    def give_back(self, store_location: StoreLocation) -> None:
        """Empty a schema for the next test, or drop it where a test changed it or a process still uses it."""
        if self._is_in_use(store_location) or self._read_structure(store_location) != self._structure:
            store_location.drop()
            return
        schema = sql.Identifier(store_location.schema)
        statements = [sql.SQL("DELETE FROM {}.{}").format(schema, sql.Identifier(table)) for table in self._tables]
        for sequence in self._sequences:
            name = sql.Identifier(store_location.schema, sequence).as_string()
            statements.append(sql.SQL("SELECT setval({}, 1, false)").format(sql.Literal(name)))
        self._raw.execute(sql.SQL("; ").join(statements))
        self._free.append(store_location)

    def close(self) -> None:
        """Drop all schemas."""
        for store_location in self._free:
            store_location.drop()
        self._raw.close()

    def _create(self) -> StoreLocation:
        store_location = StoreLocation("postgres", self._url, f"test_{new_id()}")
        store_location.open(SystemClock()).close()
        return store_location

    def _is_in_use(self, store_location: StoreLocation) -> bool:
        return self._raw.execute(_USERS, (store_location.schema,)).fetchone() is not None

    def _read_structure(self, store_location: StoreLocation) -> object:
        return self._raw.execute(_STRUCTURE, (store_location.schema,)).fetchone()

    def _read_contents(self, store_location: StoreLocation) -> tuple[list[str], list[str]]:
        rows = self._raw.execute(_CONTENTS, (store_location.schema,)).fetchall()
        tables = [str(name) for name, kind in rows if kind == "r" and name != _VERSION]
        return tables, [str(name) for name, kind in rows if kind == "S"]
