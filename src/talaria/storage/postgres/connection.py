"""One connection to a PostgreSQL server."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache

import psycopg

from talaria.contracts.clock import Clock
from talaria.core.errors import StoreError
from talaria.core.ids import WorkerId
from talaria.storage.postgres.errors import translated
from talaria.storage.postgres.search import PostgresArrivals, PostgresSearch
from talaria.storage.sql import Row, Value, to_stamp
from talaria.storage.tables.archive import ArchiveTable
from talaria.storage.tables.transaction import Tables

_SAME_TIME = 100_000  # microseconds: clocks that differ by less are taken for one
_COLUMNS = (
    "SELECT column_name FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position"
)
_CONTINUE_NUMBERS = tuple(
    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), coalesce(max({column}), 0) + 1, false) FROM {table}"
    for table, column in (("sessions", "number"), ("inbox", "id"), ("outbox", "id"), ("completions", "id"))
)


class PostgresConnection:
    """Implements `Connection` and is its own `Sql`.

    Statements whose result nobody waits for travel together with the next one (psycopg's pipeline mode), so
    a transaction costs about as many round trips as it has questions. Time is the server's, whatever
    the clocks of the workers say.
    """

    locked = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"
    bytewise = ' COLLATE "C"'

    def __init__(self, server: str, raw: psycopg.Connection[Row], clock: Clock, worker: WorkerId) -> None:
        self.server = server
        self.raw = raw
        self.now = 0
        self.worker = worker
        self._clock = clock
        self._reading = False
        self._pipeline: psycopg.Pipeline | None = None
        self._open_pipeline: AbstractContextManager[psycopg.Pipeline] | None = None
        self._ahead = self._server_ahead()
        arrivals = PostgresArrivals(self)
        archive = ArchiveTable(self, arrivals, columns=_COLUMNS, finish=_CONTINUE_NUMBERS)
        self.tables = Tables(self, arrivals, PostgresSearch(self), archive)

    def begin(self, *, write: bool) -> None:
        """Start a transaction; one that only reads sees the same view throughout."""
        try:
            self._open_pipeline = self.raw.pipeline()
            self._pipeline = self._open_pipeline.__enter__()
        except psycopg.Error as error:
            self._open_pipeline = None
            raise translated(error, self.server) from error
        try:
            self.run("BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except StoreError:
            self._abandon_pipeline()
            raise
        self._reading = not write
        self.now = to_stamp(self._clock.now()) + self._ahead

    def commit(self) -> None:
        """Make it durable."""
        self.run("COMMIT")
        try:
            self._end_pipeline()
        except psycopg.Error as error:
            raise translated(error, self.server) from error

    def rollback(self) -> None:
        """Undo it, as far as it is not undone already; a lost connection is, by the server.

        What only reads is committed instead: at each ROLLBACK psycopg forgets the statements that it has prepared.
        """
        if self._reading:
            with suppress(psycopg.Error):  # it has failed, and is undone below
                self.raw.execute("COMMIT")
        try:
            self._end_pipeline()
            self.raw.rollback()
        except psycopg.Error:
            if not self.raw.broken:
                self.raw.rollback()

    @property
    def is_tended(self) -> bool:
        """Always: the server tends itself."""
        return True

    def tend(self) -> bool:
        """Do nothing: the server tends itself."""
        return False

    def close(self) -> None:
        """Let go of the server."""
        self._abandon_pipeline()
        self.raw.close()

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        """Run a statement whose result does not matter."""
        self._execute(statement, values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""
        for values in rows:
            self._execute(statement, values)

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return how many rows it changed."""
        return self._answered(statement, values).rowcount

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a result, or ``None``."""
        cursor = self._answered(statement, values)
        try:
            return cursor.fetchone()
        except psycopg.Error as error:
            raise translated(error, self.server) from error

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return every row of a result."""
        cursor = self._answered(statement, values)
        try:
            return cursor.fetchall()
        except psycopg.Error as error:
            raise translated(error, self.server) from error

    def _answered(self, statement: str, values: Sequence[Value]) -> psycopg.Cursor[Row]:
        """Run a statement, and wait for its result.

        With a sync, not a mere flush: between the two the server knows that it waits for us, and for how long it does.
        """
        cursor = self._execute(statement, values)
        try:
            if self._pipeline is not None:
                self._pipeline.sync()
        except psycopg.Error as error:
            raise translated(error, self.server) from error
        return cursor

    def _execute(self, statement: str, values: Sequence[Value]) -> psycopg.Cursor[Row]:
        try:
            return self.raw.execute(_spelled(statement), values)
        except psycopg.Error as error:
            raise translated(error, self.server) from error

    def _end_pipeline(self) -> None:
        pipeline, self._open_pipeline, self._pipeline = self._open_pipeline, None, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)

    def _abandon_pipeline(self) -> None:
        """Leave pipeline mode; one that is only garbage-collected complains on the terminal."""
        with suppress(psycopg.Error):
            self._end_pipeline()

    def _server_ahead(self) -> int:
        """Return by how much the server's clock differs: not at all, if it may have answered at what it says is now."""
        asked = time.time_ns() // 1000
        row = self.row("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        answered = time.time_ns() // 1000
        server = row[0] if row else asked
        ahead = server - min(max(server, asked), answered)
        return ahead if abs(ahead) > _SAME_TIME else 0


@cache
def _spelled(statement: str) -> bytes:
    """Return a statement as psycopg spells it; all of them are ours, none has a value in it."""
    return statement.replace("%", "%%").replace("?", "%s").encode()
