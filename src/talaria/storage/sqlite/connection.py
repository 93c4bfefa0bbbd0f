"""SQLite connection with its transactions, notifications, full-text index, and translation of its errors."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from talaria.contracts.clock import Clock
from talaria.contracts.stores.sessions import Hit, SearchQuery
from talaria.core.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreGone, StoreUnavailable
from talaria.core.ids import WorkerId
from talaria.core.messages import Part
from talaria.storage.database import Tables
from talaria.storage.sqlite.store_file import OriginalFile
from talaria.storage.tables.search import (
    JOINS,
    RANKED_LIMIT,
    ParsedQuery,
    add_separators,
    build_filters,
    format_match,
    has_phrases,
    make_hits,
    parse_query,
)
from talaria.storage.tables.sessions import searchable_text
from talaria.storage.tables.sql import Row, Sql, Value, to_stamp

if TYPE_CHECKING:  # loaded for backups and recovery, and with the first search
    from talaria.storage.tables.archive import ArchiveTable
    from talaria.storage.tables.snippets import SnippetMaker

_FULL = "couldn't be written: its disk is full. Free some space and try again."
_READ_ONLY = "can't be written: its file system is read-only."
_MIN_FREE = 64 * 1024  # bytes: SQLite needs half of that to open a file
_DISK_ERRORS = (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError)  # for example of a disk that cannot be written
_ERROR_MAP: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError], str], ...] = (
    (apsw.BusyError, StoreBusy, "was locked by another process for too long. Try again in a moment."),
    (apsw.FullError, StoreFull, _FULL),
    (
        (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError),
        StoreCorrupt,
        "is damaged. Run `talaria doctor --fix`: it recovers what can be read and keeps the damaged file.",
    ),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        StoreUnavailable,
        "can't be opened for writing. Check that you own the file and its folder.",
    ),
    (apsw.IOError, StoreUnavailable, "can't be read or written. Check the disk."),
)
_LARGE_INDEX = 100_000  # messages; above this, reading texts is faster than counting a phrase in the index
_PHRASE_WINDOW = 200  # only this many of the newest phrase matches are ranked
_MERGED_PAGES = 128  # per batch; enough to keep up, and takes a few milliseconds at most


def translate_error(error: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Return a `StoreError` whose message tells the user what to do."""
    if isinstance(error, _DISK_ERRORS) and (cause := _find_disk_problem(path)) is not None:
        return cause
    for engine_error, store_error, advice in _ERROR_MAP:
        if isinstance(error, engine_error):
            return store_error(f"{path} {advice}")
    return StoreError(f"{path}: {error}")


def is_disk_full(path: str) -> bool:
    """Return whether the disk of a file has less than 64 KiB free."""
    disk = os.statvfs(Path(path).parent)
    return disk.f_bavail * disk.f_frsize < _MIN_FREE


def _find_disk_problem(path: str) -> StoreError | None:
    """Return an error for a read-only or full disk, or ``None``."""
    try:
        if os.statvfs(Path(path).parent).f_flag & os.ST_RDONLY:
            return StoreUnavailable(f"{path} {_READ_ONLY}")
        return StoreFull(f"{path} {_FULL}") if is_disk_full(path) else None
    except OSError:
        return None


class SqliteArrivals:
    """`ArrivalLog` implementation; the text is read again when the message is indexed."""

    def __init__(self, sql: Sql, last_number: Callable[[], int]) -> None:
        self._sql = sql
        self._last_number = last_number

    def note(self, message_id: int, parts: tuple[Part, ...]) -> int:
        """Add a message and return its arrival number."""
        self._sql.run("INSERT INTO arrivals (message_id) VALUES (?)", (message_id,))
        return self._last_number()

    def add_copy(self, message_id: int, copy_id: int) -> int:
        """Add a copy of a stored message and return the arrival number of the copy."""
        return self.note(copy_id, ())

    def forget(self, first_id: int, last_id: int) -> None:
        """Remove the messages in a range of ids; call before they are deleted."""
        numbers = self._sql.rows("SELECT arrival FROM messages WHERE id BETWEEN ? AND ?", (first_id, last_id))
        self._sql.run_many("DELETE FROM words WHERE rowid = ?", numbers)
        self._sql.run_many("DELETE FROM arrivals WHERE number = ?", numbers)


class SqliteSearch:
    """`Search` implementation with FTS5; messages that are not indexed yet are searched by their text."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches, highest score first; a query without words returns none."""
        parsed = parse_query(query.text)
        if not parsed.groups:
            return []
        scored = self._find_indexed(query, parsed) + self._find_unindexed(query, parsed)
        scored.sort(key=lambda pair: (-pair[1], -pair[0]))
        return make_hits(self._sql, self._snippets.mark, parsed, scored[: query.limit])

    def count_unindexed(self) -> int:
        """Return the number of stored messages that are not indexed yet."""
        row = self._sql.row("SELECT count(*) FROM arrivals WHERE number > (SELECT arrival FROM indexed)")
        return int(row[0]) if row else 0

    def catch_up(self, count: int = 200) -> int:
        """Index up to ``count`` messages, oldest first, and return their number."""
        rows = self._sql.rows(
            "SELECT number, body FROM arrivals JOIN messages ON messages.id = message_id"
            " WHERE number > (SELECT arrival FROM indexed) ORDER BY number LIMIT ?",
            (count,),
        )
        if rows:
            self._sql.run_many(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                [(number, add_separators(searchable_text(body))) for number, body in rows],
            )
            self._sql.run("UPDATE indexed SET arrival = ?", (rows[-1][0],))
            self._sql.run("INSERT INTO words (words, rank) VALUES ('merge', ?)", (_MERGED_PAGES,))
        return len(rows)

    @cached_property
    def _snippets(self) -> "SnippetMaker":
        from talaria.storage.tables.snippets import SnippetMaker  # noqa: PLC0415 (loaded with the first search)

        return SnippetMaker()

    def _find_indexed(self, query: SearchQuery, parsed: ParsedQuery) -> list[tuple[int, float]]:
        if has_phrases(parsed) and self._index_is_large():
            return self._find_phrases(query, parsed)
        conditions, values = build_filters(query)
        joins = f" JOIN arrivals ON arrivals.number = words.rowid{JOINS}" if conditions else ""
        rows = self._sql.rows(
            "SELECT number, score FROM (SELECT words.rowid AS number, -bm25(words) AS score"
            f" FROM words{joins} WHERE words MATCH ?{conditions} ORDER BY words.rowid DESC LIMIT ?)"
            " ORDER BY score DESC, number DESC LIMIT ?",
            (format_match(parsed), *values, RANKED_LIMIT, query.limit),
        )
        return [(number, score) for number, score in rows]

    def _find_phrases(self, query: SearchQuery, parsed: ParsedQuery) -> list[tuple[int, float]]:
        """Rank phrase matches by their texts, because bm25() would count each phrase in the whole index."""
        conditions, values = build_filters(query)
        rows = self._sql.rows(
            f"SELECT arrivals.number, messages.body FROM words JOIN arrivals ON arrivals.number = words.rowid{JOINS}"
            f" WHERE words MATCH ?{conditions} ORDER BY words.rowid DESC LIMIT ?",
            (format_match(parsed), *values, _PHRASE_WINDOW),
        )
        return self._score_rows(rows, parsed)

    def _index_is_large(self) -> bool:
        return self._sql.row("SELECT 1 FROM indexed WHERE arrival > ?", (_LARGE_INDEX,)) is not None

    def _find_unindexed(self, query: SearchQuery, parsed: ParsedQuery) -> list[tuple[int, float]]:
        conditions, values = build_filters(query)
        rows = self._sql.rows(
            f"SELECT arrivals.number, messages.body FROM arrivals{JOINS}"
            f" WHERE arrivals.number > (SELECT arrival FROM indexed){conditions}"
            " ORDER BY arrivals.number DESC LIMIT ?",
            (*values, RANKED_LIMIT),
        )
        return self._score_rows(rows, parsed)

    def _score_rows(self, rows: Sequence[Row], parsed: ParsedQuery) -> list[tuple[int, float]]:
        if not rows:
            return []
        scores = self._snippets.score([searchable_text(body) for _, body in rows], parsed)
        return [(rows[position][0], score) for position, score in scores]


MIGRATIONS = Path(__file__).with_name("migrations")
_INDEX_BATCH = 400
_PRUNE_EVERY = 256  # notifications
_KEPT_NOTIFICATIONS = 1024  # a reader that has missed more rows wakes every topic


class SqliteConnection:
    """`Connection` and `Sql` implementation on apsw; a single writer needs no row locks.

    Writes raise ``refusal`` if one is given, and `StoreGone` once the file is no longer the ``original``.
    """

    locked = ""
    skip_locked = ""
    bytewise = ""

    def __init__(
        self,
        path: str,
        raw: apsw.Connection,
        clock: Clock,
        worker: WorkerId,
        *,
        closing: Callable[[], None],
        original: OriginalFile | None = None,
        refusal: StoreError | None = None,
    ) -> None:
        self.path = path
        self.raw = raw
        self.now = 0
        self.worker = worker
        self._clock = clock
        self._on_close = closing
        self._original = original
        self._refusal = refusal
        self._writing = True
        self._is_full = False
        self._maintained_at = -1
        arrivals = SqliteArrivals(self, raw.last_insert_rowid)
        self.tables = Tables(self, arrivals, SqliteSearch(self), partial(self._make_archive, arrivals))

    def begin(self, *, write: bool) -> None:
        """Start a transaction; a write transaction waits for other writers first."""
        if write:
            if self._refusal is not None:
                raise self._refusal
            self._check_original()
            self._shrink_log()
        if write != self._writing:
            self.run(f"PRAGMA query_only = {int(not write)}")
            self._writing = write
        self.run("BEGIN IMMEDIATE" if write else "BEGIN")
        self.now = to_stamp(self._clock.now())
        self.tables.begin(write=write)

    def commit(self) -> Mapping[str, int]:
        """Commit durably, with a row for each notified topic, and return the numbers of these rows."""
        notified = {topic: self._record_notification(topic) for topic in self.tables.take_notified()}
        self.run("COMMIT")
        return notified

    def rollback(self) -> None:
        """Undo the transaction, unless SQLite has already done so after an error."""
        if self.raw.in_transaction:
            self.run("ROLLBACK")

    @property
    def is_maintained(self) -> bool:
        """Return whether nothing has been written on this connection since all messages were indexed."""
        return self.raw.total_changes() == self._maintained_at

    def run_maintenance(self) -> bool:
        """Index a batch of messages and return whether more remain."""
        self.begin(write=True)
        try:
            count = self.tables.search.catch_up(_INDEX_BATCH)
        except BaseException:
            self.rollback()
            raise
        self.commit()
        more = count == _INDEX_BATCH
        self._maintained_at = -1 if more else self.raw.total_changes()
        return more

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            self.raw.close()
        except apsw.Error as error:
            raise translate_error(error, self.path) from error
        finally:
            self._on_close()

    def _make_archive(self, arrivals: SqliteArrivals) -> "ArchiveTable":
        from talaria.storage.tables.archive import ArchiveTable  # noqa: PLC0415 (loaded for backups and recovery)

        return ArchiveTable(self, arrivals, MIGRATIONS, columns="SELECT name FROM pragma_table_info(?)")

    def _record_notification(self, topic: str) -> int:
        self.run("INSERT INTO notifications (topic) VALUES (?)", (topic,))
        seq = self.raw.last_insert_rowid()
        if seq % _PRUNE_EVERY == 0:
            self.run("DELETE FROM notifications WHERE seq <= ?", (seq - _KEPT_NOTIFICATIONS,))
        return seq

    def _shrink_log(self) -> None:
        """Checkpoint the log once a full disk has space again, so that the log restarts at its beginning."""
        if self._is_full:
            with suppress(apsw.Error, OSError):  # harmless: the following write reports the error
                if not is_disk_full(self.path):
                    self.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                    self._is_full = False

    def _translate_error(self, error: apsw.Error | UnicodeDecodeError) -> StoreError:
        store_error = translate_error(error, self.path)
        self._is_full = self._is_full or isinstance(store_error, StoreFull)
        return store_error

    def _check_original(self) -> None:
        if self._original is None:
            return
        try:
            self._original.check()
        except StoreGone:
            self._original.rescue(self.raw)
            raise

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        """Run a statement and ignore its result."""
        try:
            self.raw.execute(statement, values)
        except apsw.Error as error:
            raise self._translate_error(error) from error

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""
        try:
            self.raw.executemany(statement, rows)
        except apsw.Error as error:
            raise self._translate_error(error) from error

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return the number of changed rows."""
        self.run(statement, values)
        return self.raw.changes()

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a result, or ``None``."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a result."""
        try:
            return self.raw.execute(statement, values).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._translate_error(error) from error
