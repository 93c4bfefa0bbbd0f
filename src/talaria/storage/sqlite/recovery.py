"""Find damage in a SQLite store, keep the damaged file aside and make a new one of what can be read."""

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreCorrupt
from talaria.core.ids import new_session_id
from talaria.storage.sql import Row
from talaria.storage.sqlite.errors import translated
from talaria.storage.sqlite.opening import DEFAULTS, create_private, open_raw
from talaria.storage.sqlite.pages import rows_on_pages
from talaria.storage.sqlite.presence import Presence
from talaria.storage.sqlite.salvage import graft_schema, is_readable, numbered_rows, readable_rows
from talaria.storage.tables.archive import KEYS
from talaria.storage.tables.messages import SEQ_BITS, Body

_NUMBERED = {"sessions": "number", "inbox": "id", "outbox": "id", "completions": "id"}
_SESSIONS_MISSED = f"SELECT DISTINCT id >> {SEQ_BITS} FROM messages EXCEPT SELECT number FROM sessions"
_COMPANIONS = ("", "-wal")
_STEPS_BETWEEN_LOOKS = 20_000

_decode = msgspec.json.Decoder(Body).decode


class Recovery(Struct, frozen=True):
    """What became of a damaged file."""

    kept: Path
    sessions: int
    messages: int

    def __str__(self) -> str:
        return (
            f"The store was damaged. {self.messages} messages of {self.sessions} sessions were recovered;"
            f" the damaged file is kept as {self.kept}."
        )


def find_damage(path: Path, *, thorough: bool = True, steps: int = 0) -> list[str]:
    """Return what is wrong with a file, a sentence each; with ``steps`` it looks only so far."""
    try:
        raw = open_raw(path, DEFAULTS)
    except StoreCorrupt as error:
        return [str(error)]
    try:
        if steps:
            looks = iter(range(steps // _STEPS_BETWEEN_LOOKS))
            raw.set_progress_handler(lambda: next(looks, None) is None, _STEPS_BETWEEN_LOOKS)
        rows = raw.execute(f"PRAGMA {'integrity_check' if thorough else 'quick_check'}(10)").fetchall()
        return [str(row[0]) for row in rows if row[0] != "ok"]
    except apsw.InterruptError:
        return []
    except apsw.Error as error:
        return [str(translated(error, str(path)))]
    finally:
        raw.close(True)


def recover(path: Path, clock: Clock | None = None) -> Recovery:
    """Replace a damaged file by a new one; raises `Refused` while another process uses it."""
    presence = Presence(path, alone=True)
    try:
        kept = _put_aside(path, clock or SystemClock())
        return _rebuild(path, kept)
    finally:
        presence.end()


def _put_aside(path: Path, clock: Clock) -> Path:
    kept = path.with_name(f"{path.name}.damaged-{clock.now():%Y%m%dT%H%M%S%f}")
    for companion in _COMPANIONS:
        with suppress(FileNotFoundError):
            Path(f"{path}{companion}").rename(f"{kept}{companion}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    return kept


def _rebuild(path: Path, kept: Path) -> Recovery:
    fresh, copy = path.with_name(f"{path.name}.recovering"), path.with_name(f"{path.name}.salvage")
    _remove(fresh, copy)
    try:
        for companion in _COMPANIONS:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{kept}{companion}", f"{copy}{companion}")
        create_private(fresh)
        open_raw(fresh, DEFAULTS).close()
        target = open_raw(fresh, DEFAULTS)
        source = _open_damaged(copy, fresh)
        with target:
            for table in KEYS:
                _copy_table(source, target, table)
            all_arrivals = is_readable(source, "arrivals")
            source.close(True)
            _copy_from_pages(copy, target, "messages", _missed_messages(target, all_arrivals=all_arrivals))
            _copy_from_pages(copy, target, "sessions", _missed_sessions(target))
            _mend(target)
        counts = target.execute("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)").fetchall()
        target.close()
        fresh.rename(path)
    finally:
        _remove(fresh, copy)
    sessions, messages = counts[0]
    return Recovery(kept, int(str(sessions)), int(str(messages)))


def _open_damaged(copy: Path, template: Path) -> apsw.Connection:
    try:
        raw = apsw.Connection(str(copy))
        raw.execute("SELECT count(*) FROM sqlite_schema")
    except apsw.Error:
        graft_schema(copy, template)
        raw = apsw.Connection(str(copy))
    return raw


def _copy_table(source: apsw.Connection, target: apsw.Connection, table: str) -> None:
    columns = _columns(target, table)
    if table == "messages":
        arrivals = numbered_rows(source, "arrivals", _columns(target, "arrivals"), "number")
        _insert(target, "arrivals", arrivals)
        known = [int(str(row[0])) for row in target.execute("SELECT message_id FROM arrivals ORDER BY message_id")]
        rows = numbered_rows(source, table, columns, "id", known)
    elif table in _NUMBERED:
        rows = numbered_rows(source, table, columns, _NUMBERED[table])
    else:
        rows = readable_rows(source, table, columns)
    _insert(target, table, rows)


def _copy_from_pages(copy: Path, target: apsw.Connection, table: str, is_missed: Callable[[int, Row], bool]) -> None:
    """Look on every page of the file for rows that the tree of their table does not lead to any more."""
    found = rows_on_pages(copy, len(_columns(target, table)))
    _insert(target, table, ((key, *row[1:]) for key, row in found if is_missed(key, row)))


def _missed_messages(target: apsw.Connection, *, all_arrivals: bool) -> Callable[[int, Row], bool]:
    """Return what tells a message that was there from one that was deleted.

    The list of arrivals says which were there. Where a part of it is lost as well, it has nothing to say of those that
    arrived then: better one too many of them than all of them gone.
    """
    known = {row[0] for row in target.execute("SELECT message_id FROM arrivals EXCEPT SELECT id FROM messages")}
    numbers = {row[0] for row in target.execute("SELECT number FROM arrivals")}
    arrival = _columns(target, "messages").index("arrival")
    return lambda key, row: key in known or not (all_arrivals or row[arrival] in numbers)


def _missed_sessions(target: apsw.Connection) -> Callable[[int, Row], bool]:
    missed = {row[0] for row in target.execute(_SESSIONS_MISSED)}
    return lambda key, row: key in missed


def _insert(target: apsw.Connection, table: str, rows: Iterable[Row]) -> None:
    columns = _columns(target, table)
    statement = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for row in rows:
        if table != "messages" or _is_body(row[columns.index("body")]):
            with suppress(apsw.Error):  # a row of the wrong shape is part of the damage
                target.execute(statement, row)


def _columns(target: apsw.Connection, table: str) -> list[str]:
    return [str(row[0]) for row in target.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _is_body(text: str) -> bool:
    try:
        _decode(text)
    except (msgspec.DecodeError, TypeError):
        return False
    return True


def _mend(target: apsw.Connection) -> None:
    """Number the arrivals again and give messages whose session was lost a new one."""
    target.execute(
        "INSERT OR IGNORE INTO arrivals (number, message_id) SELECT arrival, id FROM messages ORDER BY arrival"
    )
    lasts = target.execute(
        f"SELECT id >> {SEQ_BITS}, max(id) & {(1 << SEQ_BITS) - 1}, min(at), max(at) FROM messages GROUP BY 1"
    ).fetchall()
    for number, last, began, ended in lasts:
        target.execute(
            "INSERT INTO sessions (number, id, source, title, title_folded, created_at, updated_at, last_seq)"
            " VALUES (?, ?, 'recovered', 'Recovered', 'recovered', ?, ?, ?)"
            " ON CONFLICT (number) DO UPDATE SET last_seq = max(last_seq, excluded.last_seq)",
            (number, new_session_id(), began, ended, last),
        )


def _remove(*files: Path) -> None:
    for file in files:
        for companion in (*_COMPANIONS, "-shm"):
            Path(f"{file}{companion}").unlink(missing_ok=True)
