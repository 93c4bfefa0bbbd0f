"""All tables as plain rows."""

from collections.abc import Iterable, Iterator, Sequence

from talaria.contracts.stores.archive import Cell
from talaria.storage.sql import Row, Sql
from talaria.storage.tables.messages import Arrivals
from talaria.storage.tables.search import searchable_text

KEYS: dict[str, tuple[str, ...]] = {
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
}
"""The tables that hold a person's data, each with the columns that its rows are read by."""

_PAGE = 500
_EVERYTHING = (0, (1 << 63) - 1)


class ArchiveTable:
    """Implements `Archive`.

    A message's number of arrival is not part of it: messages come in the order of their arrival and are
    numbered anew, which also brings them into the index.
    """

    def __init__(self, sql: Sql, arrivals: Arrivals, *, columns: str, finish: Sequence[str] = ()) -> None:
        self._sql = sql
        self._arrivals = arrivals
        self._columns = columns
        self._finish = finish

    def tables(self) -> list[str]:
        """Return the names of the tables, in the order in which to load them."""
        return list(KEYS)

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, in the order of `rows`."""
        names = [row[0] for row in self._sql.rows(self._columns, (table,))]
        return [name for name in names if (table, name) != ("messages", "arrival")]

    def rows(self, table: str) -> Iterator[Sequence[Cell]]:
        """Yield the rows of a table; only within the transaction."""
        keys = ", ".join(KEYS[table])
        wanted = f"SELECT {keys}, {', '.join(self.columns(table))} FROM {table}"
        behind = f" WHERE ({keys}) > ({', '.join('?' * len(KEYS[table]))})"
        end = f" ORDER BY {keys} LIMIT {_PAGE}"
        page: list[Row] = self._sql.rows(wanted + end)
        while page:
            yield from (row[len(KEYS[table]) :] for row in page)
            page = self._sql.rows(wanted + behind + end, page[-1][: len(KEYS[table])])

    def clear(self) -> None:
        """Remove every row of every table."""
        self._arrivals.forget(*_EVERYTHING)
        for table in KEYS:
            self._sql.run(f"DELETE FROM {table}")

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> int:
        """Add rows and return how many; columns that are not given get their defaults."""
        numbered = table == "messages"
        names = [*columns, "arrival"] if numbered else columns
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        count = 0
        for row in rows:
            self._sql.run(statement, (*row, self._arrival(columns, row)) if numbered else row)
            count += 1
        return count

    def finish(self) -> None:
        """Make the store ready for new rows behind the last `load`."""
        for statement in self._finish:
            self._sql.run(statement)

    def _arrival(self, columns: Sequence[str], row: Sequence[Cell]) -> int:
        body, message_id = row[columns.index("body")], row[columns.index("id")]
        return self._arrivals.note(int(message_id or 0), searchable_text(str(body)))
