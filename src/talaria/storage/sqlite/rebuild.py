"""Copying of all readable rows from a damaged store to a new one."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.errors import StoreCorrupt
from talaria.core.ids import new_session_id
from talaria.storage.migrations import list_data_migrations
from talaria.storage.sqlite.connection import MIGRATIONS
from talaria.storage.sqlite.salvage import (
    RowScan,
    graft_schema,
    is_readable,
    iterate_numbered_rows,
    iterate_page_rows,
    iterate_readable_rows,
)
from talaria.storage.tables.archive import TABLE_KEYS
from talaria.storage.tables.sessions import SEQ_BITS, MessageBody
from talaria.storage.tables.sql import Row, from_stamp

_NUMBER_COLUMNS = {"sessions": "number", "inbox": "id", "outbox": "id", "completions": "id"}
_SESSIONS_MISSED = f"SELECT DISTINCT id >> {SEQ_BITS} FROM messages EXCEPT SELECT number FROM sessions"
_MESSAGES_MISSED = "SELECT message_id FROM arrivals EXCEPT SELECT id FROM messages"
_GAPS = f"""WITH known(number, seq) AS (
        SELECT number, last_seq FROM sessions
        UNION ALL SELECT id >> {SEQ_BITS}, id & {(1 << SEQ_BITS) - 1} FROM messages
        UNION ALL SELECT message_id >> {SEQ_BITS}, message_id & {(1 << SEQ_BITS) - 1} FROM arrivals
    ), span(number, first, last) AS (
        SELECT known.number, coalesce(max(parent_seq), min(seq) - 1), max(seq)
        FROM known LEFT JOIN sessions USING (number) GROUP BY known.number
    )
    SELECT coalesce(sum(max(0, last - first - (SELECT count(*) FROM messages
        WHERE id > (number << {SEQ_BITS}) + first AND id <= (number << {SEQ_BITS}) + last))), 0) FROM span"""
_DECODERS: dict[tuple[str, str], Callable[[Any], object]] = {
    ("messages", "body"): msgspec.json.Decoder(MessageBody).decode,
    ("bindings", "address"): msgspec.json.Decoder(Address).decode,
    ("outbox", "address"): msgspec.json.Decoder(Address).decode,
}
# Errors that mean a damaged row; errors of the new file itself are raised.
_REFUSED_ROW = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, OverflowError)


class RebuildReport(Struct, frozen=True):
    """Numbers of recovered and lost rows; losses are lower bounds."""

    sessions: int
    messages: int
    lost_messages: int = 0
    lost_rows: int = 0


def rebuild(damaged: Path, fresh: Path, target: apsw.Connection) -> RebuildReport:
    """Copy all readable rows from ``damaged`` to ``fresh``, open as ``target``, in one transaction.

    ``damaged`` is modified: pass a working copy.
    """
    copy = _Copier(damaged, target, open_damaged(damaged, fresh))
    with target:
        lost_messages = copy.run()
        for statement in list_data_migrations(MIGRATIONS):
            target.execute(statement)
        counts = target.execute("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)").fetchall()
    sessions, messages = counts[0]
    return RebuildReport(int(str(sessions)), int(str(messages)), lost_messages, copy.lost_rows)


def open_damaged(damaged: Path, template: Path) -> apsw.Connection:
    """Open a damaged file; an unreadable schema is replaced by that of an empty store."""
    raw = _connect(damaged)
    try:
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        raw.execute("SELECT 1 FROM sessions, messages, arrivals LIMIT 0").fetchall()
    except (apsw.Error, UnicodeDecodeError):
        raw.close(force=True)
        graft_schema(damaged, template)
        raw = _connect(damaged)
    return raw


def count_unreadable_rows(raw: apsw.Connection) -> dict[str, int]:
    """Return, by table, the number of rows with values that cannot be decoded."""
    found: dict[str, int] = {}
    for table in TABLE_KEYS:
        columns = list_columns(raw, table)
        scan = RowScan(raw, f"SELECT {', '.join(columns)} FROM {table}")
        count = sum(not is_sound(table, columns, row) for row in scan) + scan.skipped
        if count:
            found[table] = count
    return found


def list_columns(raw: apsw.Connection, table: str) -> list[str]:
    """Return the columns of a table."""
    return [str(row[0]) for row in raw.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def is_sound(table: str, columns: list[str], row: Row) -> bool:
    """Return whether the times and encoded values of a row can be decoded."""
    try:
        for column, value in zip(columns, row, strict=True):
            if (table, column) in _DECODERS:
                _DECODERS[table, column](value)
            elif value is not None and (column == "at" or column.endswith("_at")):
                from_stamp(value)
    except (msgspec.DecodeError, TypeError, StoreCorrupt):
        return False
    return True


class _Copier:
    """One pass over a damaged file; ``lost_rows`` counts damaged rows of all tables but messages."""

    def __init__(self, damaged: Path, target: apsw.Connection, source: apsw.Connection) -> None:
        self.lost_rows = 0
        self._damaged = damaged
        self._target = target
        self._source = source

    def run(self) -> int:
        """Copy everything and return the number of messages known to be lost."""
        try:
            for table in TABLE_KEYS:
                self._copy_table(table)
            all_arrivals = is_readable(self._source, "arrivals")
            # Pages are read from the file only, so its log must be checkpointed first.
            self._source.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._source.close(force=True)
        self._copy_from_pages("messages", self._match_missed_messages(all_arrivals=all_arrivals))
        self._copy_from_pages("sessions", self._match_missed_sessions())
        lost = self._count(f"SELECT count(*) FROM ({_MESSAGES_MISSED})")
        if not all_arrivals:
            lost = max(lost, self._count(_GAPS))
        self._repair_references()
        return lost

    def _copy_table(self, table: str) -> None:
        columns = self._list_columns(table)
        if table == "messages":
            arrivals = iterate_numbered_rows(self._source, "arrivals", self._list_columns("arrivals"), "number")
            self._insert("arrivals", arrivals)
            known = [int(str(row[0])) for row in self._target.execute("SELECT message_id FROM arrivals ORDER BY 1")]
            self._insert(table, iterate_numbered_rows(self._source, table, columns, "id", known))
        elif table in _NUMBER_COLUMNS:
            self.lost_rows += self._insert(
                table, iterate_numbered_rows(self._source, table, columns, _NUMBER_COLUMNS[table])
            )
        else:
            self.lost_rows += self._insert(table, iterate_readable_rows(self._source, table, columns))

    def _copy_from_pages(self, table: str, is_missed: Callable[[int, Row], bool]) -> None:
        """Copy rows found on any page of the file that are no longer reachable through the table's tree."""
        size = int(self._target.pragma("page_size"))
        found = iterate_page_rows(self._damaged, size, len(self._list_columns(table)))
        self._insert(table, ((key, *row[1:]) for key, row in found if is_missed(key, row)))

    def _match_missed_messages(self, *, all_arrivals: bool) -> Callable[[int, Row], bool]:
        """Return a predicate that separates lost messages from deleted ones.

        The arrival log lists all existing messages. Where part of it is lost too, messages with unknown arrival
        numbers are included: recovering a deleted message is better than losing an existing one.
        """
        known = {row[0] for row in self._target.execute(_MESSAGES_MISSED)}
        numbers = {row[0] for row in self._target.execute("SELECT number FROM arrivals")}
        arrival = self._list_columns("messages").index("arrival")
        return lambda key, row: key in known or not (all_arrivals or row[arrival] in numbers)

    def _match_missed_sessions(self) -> Callable[[int, Row], bool]:
        missed = {row[0] for row in self._target.execute(_SESSIONS_MISSED)}
        return lambda key, _row: key in missed

    def _insert(self, table: str, rows: "Iterable[Row | None]") -> int:
        """Insert rows, ignoring duplicates, and return the number of damaged rows, including ``None``."""
        columns = self._list_columns(table)
        statement = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        damaged = 0
        for row in rows:
            if row is None or not is_sound(table, columns, row):
                damaged += 1
                continue
            try:
                self._target.execute(statement, row)
            except _REFUSED_ROW:
                damaged += 1
        return damaged

    def _repair_references(self) -> None:
        """Make the arrival log consistent with the messages, and create sessions for orphaned messages."""
        self._target.execute(f"DELETE FROM arrivals WHERE message_id IN ({_MESSAGES_MISSED})")
        self._target.execute(
            "INSERT OR IGNORE INTO arrivals (number, message_id) SELECT arrival, id FROM messages ORDER BY arrival"
        )
        last_messages = self._target.execute(
            f"SELECT id >> {SEQ_BITS}, max(id) & {(1 << SEQ_BITS) - 1}, min(at), max(at) FROM messages GROUP BY 1"
        ).fetchall()
        for number, last, began, ended in last_messages:
            self._target.execute(
                "INSERT INTO sessions (number, id, source, title, title_folded, created_at, updated_at, last_seq)"
                " VALUES (?, ?, 'recovered', 'Recovered', 'recovered', ?, ?, ?)"
                " ON CONFLICT (number) DO UPDATE SET last_seq = max(last_seq, excluded.last_seq)",
                (number, new_session_id(), began, ended, last),
            )

    def _list_columns(self, table: str) -> list[str]:
        return list_columns(self._target, table)

    def _count(self, statement: str) -> int:
        return int(str(self._target.execute(statement).get))


def _connect(damaged: Path) -> apsw.Connection:
    raw = apsw.Connection(str(damaged))
    # Keep the WAL index and sorted rows in memory, so that a full disk is not mistaken for damage.
    raw.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY")
    return raw
