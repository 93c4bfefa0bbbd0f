"""Export and import of all tables as plain rows."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from talaria.contracts.store import Cell
from talaria.core.messages import Text
from talaria.storage.migrations import list_data_migrations
from talaria.storage.tables.sessions import ArrivalLog, searchable_text
from talaria.storage.tables.sql import Row, Sql

TABLE_KEYS: dict[str, tuple[str, ...]] = {
    "sessions": ("number",),
    "messages": ("arrival",),
    "bindings": ("key",),
    "state": ("key",),
    "inbox": ("id",),
    "turns": ("id",),
    "steps": ("turn_id", "number"),
    "outbox": ("id",),
    "completions": ("id",),
    "jobs": ("id",),
    "job_runs": ("job_id", "due_at"),
    "pairing_codes": ("platform", "user_id"),
    "pairing_failures": ("platform",),
    "people": ("platform", "user_id"),
    "responses": ("id",),
    "requests": ("key",),
    "api_runs": ("id",),
    "streams": ("name",),
    "events": ("stream", "seq"),
    "accounts": ("name",),
    "daily_usage": ("day", "model", "surface", "owner"),
    "handoffs": ("session_id",),
    "session_values": ("session_id", "name", "item"),
    "named_values": ("space", "key"),
    "background_processes": ("id",),
    "delegated_tasks": ("key",),
    "forwarded_updates": ("id",),
    "api_keys": ("name",),
    "conversation_names": ("name",),
}
"""Tables that hold user data, each with the key columns by which its rows are ordered."""

_PAGE = 500
_EVERYTHING = (0, (1 << 63) - 1)


class ArchiveTable:
    """SQL implementation of `Archive`.

    The arrival number of a message is not exported. Messages are exported in order of arrival; loading assigns new
    numbers and adds the messages to the search index.
    """

    def __init__(
        self, sql: Sql, arrivals: ArrivalLog, migrations: Path, *, columns: str, finish: Sequence[str] = ()
    ) -> None:
        self._sql = sql
        self._arrivals = arrivals
        self._columns = columns
        self._migrations = migrations
        self._finish = finish

    def tables(self) -> list[str]:
        """Return the table names in the order in which to load them."""
        return list(TABLE_KEYS)

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table in the order of `rows`."""
        names = [row[0] for row in self._sql.rows(self._columns, (table,))]
        return [name for name in names if (table, name) != ("messages", "arrival")]

    def rows(self, table: str) -> Iterator[Sequence[Cell]]:
        """Yield the rows of a table in key order; valid only within the transaction."""
        keys = ", ".join(TABLE_KEYS[table])
        select = f"SELECT {keys}, {', '.join(self.columns(table))} FROM {table}"
        after = f" WHERE ({keys}) > ({', '.join('?' * len(TABLE_KEYS[table]))})"
        end = f" ORDER BY {keys} LIMIT {_PAGE}"
        page: list[Row] = self._sql.rows(select + end)
        while page:
            yield from (row[len(TABLE_KEYS[table]) :] for row in page)
            page = self._sql.rows(select + after + end, page[-1][: len(TABLE_KEYS[table])])

    def clear(self) -> None:
        """Delete every row of every table."""
        self._arrivals.forget(*_EVERYTHING)
        for table in TABLE_KEYS:
            self._sql.run(f"DELETE FROM {table}")

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> int:
        """Insert rows and return their number; omitted columns get their defaults."""
        numbered = table == "messages"
        names = [*columns, "arrival"] if numbered else columns
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        count = 0
        for row in rows:
            self._sql.run(statement, (*row, self._add_arrival(columns, row)) if numbered else row)
            count += 1
        return count

    def finish(self) -> None:
        """Prepare the store for new rows after the last `load`: move rows of old tables, reset sequences."""
        for statement in (*list_data_migrations(self._migrations), *self._finish):
            self._sql.run(statement)

    def _add_arrival(self, columns: Sequence[str], row: Sequence[Cell]) -> int:
        body, message_id = row[columns.index("body")], row[columns.index("id")]
        return self._arrivals.note(int(message_id or 0), (Text(searchable_text(str(body))),))
