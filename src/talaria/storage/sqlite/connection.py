"""One connection to a SQLite file."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import apsw

from talaria.contracts.clock import Clock
from talaria.core.errors import StoreError, StoreFull, StoreGone
from talaria.core.ids import WorkerId
from talaria.storage.sql import Row, Value, to_stamp
from talaria.storage.sqlite.errors import is_disk_full, translated
from talaria.storage.sqlite.original import Original
from talaria.storage.sqlite.search import SqliteArrivals, SqliteSearch
from talaria.storage.tables.archive import ArchiveTable
from talaria.storage.tables.transaction import Tables

_INDEXED_AT_ONCE = 400


class SqliteConnection:
    """Implements `Connection` and is its own `Sql`: one writer at a time needs no locks on rows.

    Nothing is written when the file is not the ``original`` any more, or where a ``refusal`` says why it cannot be.
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
        original: Original | None = None,
        refusal: StoreError | None = None,
    ) -> None:
        self.path = path
        self.raw = raw
        self.now = 0
        self.worker = worker
        self._clock = clock
        self._closing = closing
        self._original = original
        self._refusal = refusal
        self._writing = True
        self._is_full = False
        self._tended_at = -1
        arrivals = SqliteArrivals(self, raw.last_insert_rowid)
        archive = ArchiveTable(self, arrivals, columns="SELECT name FROM pragma_table_info(?)")
        self.tables = Tables(self, arrivals, SqliteSearch(self), archive)

    def begin(self, *, write: bool) -> None:
        """Start a transaction; one that writes waits for its turn first."""
        if write:
            if self._refusal is not None:
                raise self._refusal
            self._check_original()
            self._make_room()
        if write != self._writing:
            self.run(f"PRAGMA query_only = {int(not write)}")
            self._writing = write
        self.run("BEGIN IMMEDIATE" if write else "BEGIN")
        self.now = to_stamp(self._clock.now())

    def commit(self) -> None:
        """Make it durable."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Undo it; a full disk or a failed read may have done so already."""
        if self.raw.in_transaction:
            self.run("ROLLBACK")

    @property
    def is_tended(self) -> bool:
        """Whether nothing was written here since all messages were indexed."""
        return self.raw.total_changes() == self._tended_at

    def tend(self) -> bool:
        """Index a few messages; tell whether there are more."""
        self.begin(write=True)
        try:
            count = self.tables.search.catch_up(_INDEXED_AT_ONCE)
        except BaseException:
            self.rollback()
            raise
        self.commit()
        more = count == _INDEXED_AT_ONCE
        self._tended_at = -1 if more else self.raw.total_changes()
        return more

    def close(self) -> None:
        """Let go of the file."""
        try:
            self.raw.close()
        except apsw.Error as error:
            raise translated(error, self.path) from error
        finally:
            self._closing()

    def _make_room(self) -> None:
        """When a full disk has space again, move the log into the file: it is written from its beginning then."""
        if self._is_full:
            with suppress(apsw.Error, OSError):  # nothing is lost by it: the write that follows says what is wrong
                if not is_disk_full(self.path):
                    self.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                    self._is_full = False

    def _translated(self, error: apsw.Error | UnicodeDecodeError) -> StoreError:
        ours = translated(error, self.path)
        self._is_full = self._is_full or isinstance(ours, StoreFull)
        return ours

    def _check_original(self) -> None:
        if self._original is None:
            return
        try:
            self._original.check()
        except StoreGone:
            self._original.rescue(self.raw)
            raise

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        """Run a statement whose result does not matter."""
        try:
            self.raw.execute(statement, values)
        except apsw.Error as error:
            raise self._translated(error) from error

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""
        try:
            self.raw.executemany(statement, rows)
        except apsw.Error as error:
            raise self._translated(error) from error

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return how many rows it changed."""
        self.run(statement, values)
        return self.raw.changes()

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a result, or ``None``."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return every row of a result."""
        try:
            return self.raw.execute(statement, values).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._translated(error) from error
