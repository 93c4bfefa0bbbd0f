"""PostgreSQL connection, its errors, its full-text search, and the channel of its notifications."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path

import psycopg
from msgspec import Struct
from psycopg import errors

from talaria.contracts.clock import Clock
from talaria.contracts.stores.sessions import Hit, SearchQuery
from talaria.core.errors import StoreBusy, StoreConflict, StoreError, StoreFull, StoreUnavailable
from talaria.core.ids import WorkerId
from talaria.core.messages import Part, text_of
from talaria.storage.database import Tables
from talaria.storage.tables.archive import ArchiveTable
from talaria.storage.tables.search import (
    JOINS,
    RANKED_LIMIT,
    ParsedQuery,
    SearchTerm,
    build_filters,
    make_hits,
    parse_query,
    plain_words,
)
from talaria.storage.tables.snippets import SnippetMaker
from talaria.storage.tables.sql import Row, Sql, Value, to_stamp

_INDEXED_CHARACTERS = 200_000  # a tsvector is limited to 1 MB
_WORD_CHARACTERS = 500  # a word in a tsvector is limited to 2 KB
_ERROR_MAP: tuple[tuple[type[psycopg.Error] | tuple[type[psycopg.Error], ...], type[StoreError], str], ...] = (
    ((errors.SerializationFailure, errors.DeadlockDetected), StoreConflict, "had conflicting writes."),
    (
        (errors.DiskFull, errors.OutOfMemory),
        StoreFull,
        "has no space left, so nothing was written. Free some space on the server and try again.",
    ),
    (
        (errors.LockNotAvailable, errors.QueryCanceled),
        StoreBusy,
        "was locked by another worker for too long. Try again.",
    ),
    (
        errors.InsufficientPrivilege,
        StoreUnavailable,
        "doesn't give this user access. Grant it the right to create a schema, or create the schema for it.",
    ),
    (
        errors.IdleInTransactionSessionTimeout,
        StoreUnavailable,
        "rolled back a transaction that took too long; this machine was asleep or is overloaded. Try again.",
    ),
    (
        psycopg.OperationalError,
        StoreUnavailable,
        "can't be reached. Check that the server is running and that `store.url` is right.",
    ),
)
MIGRATIONS = Path(__file__).with_name("migrations")
_CLOCK_TOLERANCE = 100_000  # microseconds; smaller differences are ignored
_COLUMNS = (
    "SELECT column_name FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position"
)
_CONTINUE_NUMBERS = tuple(
    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), coalesce(max({column}), 0) + 1, false) FROM {table}"
    for table, column in (("sessions", "number"), ("inbox", "id"), ("outbox", "id"), ("completions", "id"))
)


class PostgresArrivals:
    """`ArrivalLog` implementation that stores the search vector with each message."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def note(self, message_id: int, parts: tuple[Part, ...]) -> int:
        """Add a message and return its arrival number."""
        words = " ".join(word[:_WORD_CHARACTERS] for word in plain_words(text_of(parts)[:_INDEXED_CHARACTERS]))
        row = self._sql.row(
            "INSERT INTO arrivals (message_id, words) VALUES (?, to_tsvector('plain_words', ?)) RETURNING number",
            (message_id, words),
        )
        assert row is not None
        return int(row[0])

    def add_copy(self, message_id: int, copy_id: int) -> int:
        """Add a copy of a stored message and return the arrival number of the copy."""
        row = self._sql.row(
            "INSERT INTO arrivals (message_id, words) SELECT ?, words FROM arrivals"
            " WHERE number = (SELECT arrival FROM messages WHERE id = ?) RETURNING number",
            (copy_id, message_id),
        )
        assert row is not None
        return int(row[0])

    def forget(self, first_id: int, last_id: int) -> None:
        """Remove the messages in a range of ids; call before they are deleted."""
        self._sql.run(
            "DELETE FROM arrivals WHERE number IN (SELECT arrival FROM messages WHERE id BETWEEN ? AND ?)",
            (first_id, last_id),
        )


class PostgresSearch:
    """`Search` implementation with ``tsvector``."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches, highest score first; a query without words returns none."""
        parsed = parse_query(query.text)
        if not parsed.groups:
            return []
        conditions, values = build_filters(query)
        expression = format_tsquery(parsed)
        rows = self._sql.rows(
            "SELECT number, ts_rank_cd(words, to_tsquery('plain_words', ?)) AS score"
            " FROM (SELECT arrivals.number, words"
            f" FROM arrivals{JOINS if conditions else ''} WHERE words @@ to_tsquery('plain_words', ?){conditions}"
            " ORDER BY arrivals.number DESC LIMIT ?) AS newest ORDER BY score DESC, number DESC LIMIT ?",
            (expression, expression, *values, RANKED_LIMIT, query.limit),
        )
        return make_hits(self._sql, self._snippets.mark, parsed, [(number, score) for number, score in rows])

    def count_unindexed(self) -> int:
        """Return 0: messages are indexed when they are stored."""
        return 0

    def catch_up(self, count: int = 200) -> int:
        """Return 0: messages are indexed when they are stored."""
        return 0

    @cached_property
    def _snippets(self) -> SnippetMaker:
        return SnippetMaker()


def format_tsquery(query: ParsedQuery) -> str:
    """Return the query in ``to_tsquery`` syntax."""
    expression = " & ".join(f"({' | '.join(map(_format_term, group))})" for group in query.groups)
    excluded = "".join(f" & !({_format_term(term)})" for term in query.excluded)
    return expression + excluded


def translate_error(error: psycopg.Error, server: str) -> StoreError:
    """Return a `StoreError` whose message tells the user what to do."""
    for engine_error, store_error, advice in _ERROR_MAP:
        if isinstance(error, engine_error):
            return store_error(f"{server} {advice} ({_take_first_line(error)})")
    return StoreError(f"{server}: {_take_first_line(error)}")


class NotificationChannel(Struct, frozen=True):
    """NOTIFY channel as one process uses it.

    ``origin`` identifies the process; it is empty for a process that never listens.
    """

    name: str
    origin: str = ""

    def encode_payload(self, topic: str) -> str:
        """Return the payload that notifies a topic."""
        return f"{self.origin}:{topic}"

    def decode_payload(self, payload: str) -> str | None:
        """Return the topic of a payload; ``None`` if it comes from this process.

        This process has already woken its own subscribers.
        """
        origin, _, topic = payload.partition(":")
        return None if origin == self.origin else topic


def make_channel_name(schema: str) -> str:
    """Return the channel name of a schema, hashed because a schema name may be too long.

    Channels are separate for each database of a server.
    """
    return f"talaria_{sha256(schema.encode()).hexdigest()[:24]}"


class PostgresConnection:
    """`Connection` and `Sql` implementation on psycopg.

    In pipeline mode, statements without a result are sent together with the next query, so a transaction takes about as
    many round trips as it has queries. Times are the server's, independent of the workers' clocks. Notifications are
    sent to ``channel``.
    """

    locked = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"
    bytewise = ' COLLATE "C"'

    def __init__(
        self, server: str, raw: psycopg.Connection[Row], clock: Clock, worker: WorkerId, channel: NotificationChannel
    ) -> None:
        self.server = server
        self.raw = raw
        self.now = 0
        self.worker = worker
        self._clock = clock
        self._channel = channel
        self._reading = False
        self._pipeline: psycopg.Pipeline | None = None
        self._open_pipeline: AbstractContextManager[psycopg.Pipeline] | None = None
        self._clock_offset = self._measure_clock_offset()
        arrivals = PostgresArrivals(self)
        make_archive = partial(ArchiveTable, self, arrivals, MIGRATIONS, columns=_COLUMNS, finish=_CONTINUE_NUMBERS)
        self.tables = Tables(self, arrivals, PostgresSearch(self), make_archive)

    def begin(self, *, write: bool) -> None:
        """Start a transaction; a read-only one sees a consistent snapshot."""
        try:
            self._open_pipeline = self.raw.pipeline()
            self._pipeline = self._open_pipeline.__enter__()
        except psycopg.Error as error:
            self._open_pipeline = None
            raise translate_error(error, self.server) from error
        try:
            self.run("BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except StoreError:
            self._abandon_pipeline()
            raise
        self._reading = not write
        self.now = to_stamp(self._clock.now()) + self._clock_offset
        self.tables.begin(write=write)

    def commit(self) -> Mapping[str, int]:
        """Commit durably; the server sends the notifications with the commit."""
        notified = self.tables.take_notified()
        for topic in notified:
            self.run("SELECT pg_notify(?, ?)", (self._channel.name, self._channel.encode_payload(topic)))
        self.run("COMMIT")
        try:
            self._end_pipeline()
        except psycopg.Error as error:
            raise translate_error(error, self.server) from error
        return dict.fromkeys(notified, 0)

    def rollback(self) -> None:
        """Undo the transaction; after a lost connection the server has already done so.

        Read-only transactions are committed instead, because psycopg drops its prepared statements at each ROLLBACK.
        """
        if self._reading:
            with suppress(psycopg.Error):  # it has failed and is rolled back below
                self.raw.execute("COMMIT")
        try:
            self._end_pipeline()
            self.raw.rollback()
        except psycopg.Error:
            if not self.raw.broken:
                self.raw.rollback()

    @property
    def is_maintained(self) -> bool:
        """Always true: the server maintains itself."""
        return True

    def run_maintenance(self) -> bool:
        """Do nothing: the server maintains itself."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self._abandon_pipeline()
        self.raw.close()

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        """Run a statement and ignore its result."""
        self._execute(statement, values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""
        for values in rows:
            self._execute(statement, values)

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return the number of changed rows."""
        return self._query(statement, values).rowcount

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a result, or ``None``."""
        cursor = self._query(statement, values)
        try:
            return cursor.fetchone()
        except psycopg.Error as error:
            raise translate_error(error, self.server) from error

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a result."""
        cursor = self._query(statement, values)
        try:
            return cursor.fetchall()
        except psycopg.Error as error:
            raise translate_error(error, self.server) from error

    def _query(self, statement: str, values: Sequence[Value]) -> psycopg.Cursor[Row]:
        """Run a statement and wait for its result.

        Uses a sync rather than a flush: only after a sync does the server count the connection as idle in its
        transaction, which its timeout needs.
        """
        cursor = self._execute(statement, values)
        try:
            if self._pipeline is not None:
                self._pipeline.sync()
        except psycopg.Error as error:
            raise translate_error(error, self.server) from error
        return cursor

    def _execute(self, statement: str, values: Sequence[Value]) -> psycopg.Cursor[Row]:
        try:
            return self.raw.execute(_to_psycopg(statement), values)
        except psycopg.Error as error:
            raise translate_error(error, self.server) from error

    def _end_pipeline(self) -> None:
        pipeline, self._open_pipeline, self._pipeline = self._open_pipeline, None, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)

    def _abandon_pipeline(self) -> None:
        """Leave pipeline mode; a pipeline that is only garbage-collected prints a warning."""
        with suppress(psycopg.Error):
            self._end_pipeline()

    def _measure_clock_offset(self) -> int:
        """Return the server's clock offset in microseconds, or 0 if within the tolerance.

        The offset is 0 if the server's time lies between request and reply.
        """
        asked = time.time_ns() // 1000
        row = self.row("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        answered = time.time_ns() // 1000
        server = row[0] if row else asked
        ahead = server - min(max(server, asked), answered)
        return ahead if abs(ahead) > _CLOCK_TOLERANCE else 0


def _format_term(term: SearchTerm) -> str:
    words = [f"'{word}'" for word in plain_words(term.text)]
    return " <-> ".join(words) + (":*" if term.prefix else "")


def _take_first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]


@cache
def _to_psycopg(statement: str) -> bytes:
    """Convert a statement to psycopg's placeholders; statements never contain user values."""
    return statement.replace("%", "%%").replace("?", "%s").encode()
