"""Fill a new store with every row that can still be read from a damaged one."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.errors import StoreCorrupt
from talaria.core.ids import new_session_id
from talaria.storage.sql import Row, from_stamp
from talaria.storage.sqlite.pages import rows_on_pages
from talaria.storage.sqlite.salvage import Scan, graft_schema, is_readable, numbered_rows, readable_rows
from talaria.storage.tables.archive import KEYS
from talaria.storage.tables.messages import SEQ_BITS, Body

_NUMBERED = {"sessions": "number", "inbox": "id", "outbox": "id", "completions": "id"}
_SESSIONS_MISSED = f"SELECT DISTINCT id >> {SEQ_BITS} FROM messages EXCEPT SELECT number FROM sessions"
_MESSAGES_MISSED = "SELECT message_id FROM arrivals EXCEPT SELECT id FROM messages"
_GAPS = f"""SELECT coalesce(sum(max(0, last_seq - parent_seq - (SELECT count(*) FROM messages
    WHERE id > (number << {SEQ_BITS}) + parent_seq AND id <= (number << {SEQ_BITS}) + last_seq))), 0) FROM sessions"""
_DECODERS: dict[tuple[str, str], Callable[[Any], object]] = {
    ("messages", "body"): msgspec.json.Decoder(Body).decode,
    ("bindings", "address"): msgspec.json.Decoder(Address).decode,
    ("outbox", "address"): msgspec.json.Decoder(Address).decode,
}
# What the new file says about a row that is damaged; errors about the new file itself are raised.
_REFUSED_ROW = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, OverflowError)


class Rebuilt(Struct, frozen=True):
    """How much a new store holds, and how much is known to be missing from it."""

    sessions: int
    messages: int
    lost_messages: int = 0
    lost_rows: int = 0


def rebuild(damaged: Path, fresh: Path, target: apsw.Connection) -> Rebuilt:
    """Copy what can be read in ``damaged``, which is changed on the way, through ``target`` into ``fresh``."""
    copy = _Copy(damaged, target, open_damaged(damaged, fresh))
    with target:
        lost_messages = copy.run()
        counts = target.execute("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)").fetchall()
    sessions, messages = counts[0]
    return Rebuilt(int(str(sessions)), int(str(messages)), lost_messages, copy.lost_rows)


def open_damaged(damaged: Path, template: Path) -> apsw.Connection:
    """Return a connection to a damaged file; a schema that cannot be read is taken from an empty store."""
    raw = _connected(damaged)
    try:
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        raw.execute("SELECT 1 FROM sessions, messages, arrivals LIMIT 0").fetchall()
    except (apsw.Error, UnicodeDecodeError):
        raw.close(True)
        graft_schema(damaged, template)
        raw = _connected(damaged)
    return raw


def unreadable_rows(raw: apsw.Connection) -> dict[str, int]:
    """Return how many rows of each table are there and hold something that cannot be decoded."""
    found: dict[str, int] = {}
    for table in KEYS:
        columns = columns_of(raw, table)
        scan = Scan(raw, f"SELECT {', '.join(columns)} FROM {table}")
        count = sum(not is_sound(table, columns, row) for row in scan) + scan.skipped
        if count:
            found[table] = count
    return found


def columns_of(raw: apsw.Connection, table: str) -> list[str]:
    """Return the columns of a table."""
    return [str(row[0]) for row in raw.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def is_sound(table: str, columns: list[str], row: Row) -> bool:
    """Tell whether the times and the encoded values of a row can be read."""
    try:
        for column, value in zip(columns, row, strict=True):
            if (table, column) in _DECODERS:
                _DECODERS[table, column](value)
            elif value is not None and (column == "at" or column.endswith("_at")):
                from_stamp(value)
    except (msgspec.DecodeError, TypeError, StoreCorrupt):
        return False
    return True


class _Copy:
    """One pass over a damaged file; ``lost_rows`` counts damaged rows of tables other than messages."""

    def __init__(self, damaged: Path, target: apsw.Connection, source: apsw.Connection) -> None:
        self.lost_rows = 0
        self._damaged = damaged
        self._target = target
        self._source = source

    def run(self) -> int:
        """Copy everything and return how many messages are known to be lost."""
        try:
            for table in KEYS:
                self._copy_table(table)
            all_arrivals = is_readable(self._source, "arrivals")
            # Pages are read from the file, so that what stands in its log has to be moved there.
            self._source.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._source.close(True)
        self._copy_from_pages("messages", self._missed_messages(all_arrivals=all_arrivals))
        self._copy_from_pages("sessions", self._missed_sessions())
        lost = self._count(f"SELECT count(*) FROM ({_MESSAGES_MISSED})")
        if not all_arrivals:
            lost = max(lost, self._count(_GAPS))
        self._complete()
        return lost

    def _copy_table(self, table: str) -> None:
        columns = self._columns(table)
        if table == "messages":
            arrivals = numbered_rows(self._source, "arrivals", self._columns("arrivals"), "number")
            self._insert("arrivals", arrivals)
            known = [int(str(row[0])) for row in self._target.execute("SELECT message_id FROM arrivals ORDER BY 1")]
            self._insert(table, numbered_rows(self._source, table, columns, "id", known))
        elif table in _NUMBERED:
            self.lost_rows += self._insert(table, numbered_rows(self._source, table, columns, _NUMBERED[table]))
        else:
            self.lost_rows += self._insert(table, readable_rows(self._source, table, columns))

    def _copy_from_pages(self, table: str, is_missed: Callable[[int, Row], bool]) -> None:
        """Look on every page of the file for rows that the tree of their table does not lead to any more."""
        size = int(self._target.pragma("page_size"))
        found = rows_on_pages(self._damaged, size, len(self._columns(table)))
        self._insert(table, ((key, *row[1:]) for key, row in found if is_missed(key, row)))

    def _missed_messages(self, *, all_arrivals: bool) -> Callable[[int, Row], bool]:
        """Return what tells a message that was there from one that was deleted.

        The list of arrivals says which were there. Where a part of it is lost as well, it says nothing about those
        that arrived then: better one too many of them than all of them gone.
        """
        known = {row[0] for row in self._target.execute(_MESSAGES_MISSED)}
        numbers = {row[0] for row in self._target.execute("SELECT number FROM arrivals")}
        arrival = self._columns("messages").index("arrival")
        return lambda key, row: key in known or not (all_arrivals or row[arrival] in numbers)

    def _missed_sessions(self) -> Callable[[int, Row], bool]:
        missed = {row[0] for row in self._target.execute(_SESSIONS_MISSED)}
        return lambda key, _row: key in missed

    def _insert(self, table: str, rows: "Iterable[Row | None]") -> int:
        """Insert rows that are not there yet; return how many are damaged, among them those that are ``None``."""
        columns = self._columns(table)
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

    def _complete(self) -> None:
        """Bring the list of arrivals in line with the messages, and give messages whose session was lost a new one."""
        self._target.execute(f"DELETE FROM arrivals WHERE message_id IN ({_MESSAGES_MISSED})")
        self._target.execute(
            "INSERT OR IGNORE INTO arrivals (number, message_id) SELECT arrival, id FROM messages ORDER BY arrival"
        )
        lasts = self._target.execute(
            f"SELECT id >> {SEQ_BITS}, max(id) & {(1 << SEQ_BITS) - 1}, min(at), max(at) FROM messages GROUP BY 1"
        ).fetchall()
        for number, last, began, ended in lasts:
            self._target.execute(
                "INSERT INTO sessions (number, id, source, title, title_folded, created_at, updated_at, last_seq)"
                " VALUES (?, ?, 'recovered', 'Recovered', 'recovered', ?, ?, ?)"
                " ON CONFLICT (number) DO UPDATE SET last_seq = max(last_seq, excluded.last_seq)",
                (number, new_session_id(), began, ended, last),
            )

    def _columns(self, table: str) -> list[str]:
        return columns_of(self._target, table)

    def _count(self, statement: str) -> int:
        return int(str(self._target.execute(statement).get))


def _connected(damaged: Path) -> apsw.Connection:
    raw = apsw.Connection(str(damaged))
    # Ours alone: the index of the log and sorted rows stay in memory, so that a full disk is not taken for damage.
    raw.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY")
    return raw
