"""SQLite connection with its transactions, notifications and deferred indexing."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from talaria.contracts.clock import Clock
from talaria.core.errors import StoreError, StoreFull, StoreGone
from talaria.core.ids import WorkerId
from talaria.storage.database import Tables
from talaria.storage.sqlite.errors import is_disk_full, translate_error
from talaria.storage.sqlite.file_identity import OriginalFile
from talaria.storage.sqlite.search import SqliteArrivals, SqliteSearch
from talaria.storage.tables.sql import Row, Value, to_stamp

if TYPE_CHECKING:  # loaded for backups and recovery
    from talaria.storage.tables.archive import ArchiveTable

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
