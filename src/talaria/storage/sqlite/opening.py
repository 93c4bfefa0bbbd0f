"""Open a SQLite file: create it, bring it up to date, refuse what is not ours."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreFull, StoreGone, StoreUnavailable
from talaria.core.ids import WorkerId, new_worker_id
from talaria.storage.database import ConnectionDatabase
from talaria.storage.migrations import LATEST, check_not_newer, migrations_in
from talaria.storage.sqlite.check_record import CheckRecord
from talaria.storage.sqlite.connection import SqliteConnection
from talaria.storage.sqlite.errors import translated
from talaria.storage.sqlite.original import Original
from talaria.storage.sqlite.presence import Presence, is_used
from talaria.storage.sqlite.repair_state import check_not_interrupted, check_not_lost

APPLICATION_ID = 0x54414C41  # "TALA", as the file command and others can see
MIGRATIONS = Path(__file__).with_name("migrations")
_OUR_TABLES = {"sessions", "messages", "arrivals"}
_LAST_POSSIBLE_VERSION = 9999  # migrations are numbered with four digits
_PAUSE = 0.005
_SURE = 0.2  # seconds: whoever makes the file at this moment has done so by then


class SqliteOptions(Struct, frozen=True):
    """How to open a file; ``on_commit`` hears of the log's length and makes the checkpoints, if it is given.

    Who heeds hints is told to look every ``look_seconds`` at least. Where an ``original`` is given, no other file is
    opened, made or written to.
    """

    busy_timeout_seconds: float = 5.0
    on_commit: Callable[[apsw.Connection, str, int], int] | None = None
    clock: Clock = SystemClock()
    worker: WorkerId | None = None
    look_seconds: float = 1.0
    original: Original | None = None


DEFAULTS = SqliteOptions()


def open_sqlite(path: Path, options: SqliteOptions = DEFAULTS) -> ConnectionDatabase:
    """Return the store in a file, created or brought up to date where needed."""
    is_new = options.original is None and _make(path)
    if options.original is None:
        CheckRecord(path).note_unclean_end(options.clock.now())
    else:
        options.original.check()
    presence = Presence(path)
    try:
        if options.original is None:
            check_not_interrupted(path)
        raw = open_raw(path, options)
    except BaseException:
        presence.end()
        raise
    if is_new:
        CheckRecord(path).write("sound", options.clock.now())
    worker = options.worker or new_worker_id()
    return ConnectionDatabase(
        SqliteConnection(str(path), raw, options.clock, worker, closing=presence.end, original=options.original),
        on_damage=lambda: CheckRecord(path).write("damaged", options.clock.now()),
    )


def _make(path: Path) -> bool:
    """Make the file where there is none, unless a process still uses one that was taken away; tell whether it did."""
    check_not_lost(path)
    if _is_there(path):
        return False
    deadline = time.monotonic() + _SURE
    while not _is_there(path) and is_used(path):
        if time.monotonic() > deadline:
            raise StoreGone(
                f"{path} is gone, and a process that is running still uses it: `talaria gateway status` tells more."
                " Put the file back, or end that process first."
            )
        time.sleep(_PAUSE)
    CheckRecord(path).forget()
    create_private(path)
    return True


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # whoever makes or opens it tells what is the matter
        return True


def create_private(path: Path) -> None:
    """Make an empty file that only its owner can read, where there is none."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        made = StoreFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreUnavailable
        raise made(f"{path} cannot be created: {error.strerror}.") from error


def open_raw(path: Path, options: SqliteOptions) -> apsw.Connection:
    """Return a connection to a file whose schema is current."""
    raw: apsw.Connection | None = None
    try:
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        raw.set_busy_timeout(int(options.busy_timeout_seconds * 1000))
        check_not_newer(checked_version(raw, path), str(path))
        _keep_log(raw, options.busy_timeout_seconds)
        raw.execute("PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY")
        if options.on_commit is not None:
            raw.set_wal_hook(options.on_commit)
        migrate(raw)
        return raw
    except BaseException as error:
        if raw is not None:
            raw.close(True)
        if isinstance(error, apsw.SQLError):  # no statement of ours fails on a sound file
            raise translated(apsw.CorruptError(str(error)), str(path)) from error
        if isinstance(error, apsw.Error):
            raise translated(error, str(path)) from error
        raise


def migrate(raw: apsw.Connection, upto: int = LATEST) -> None:
    """Run the steps that a file has not seen; processes that start together wait for each other."""
    if _version(raw) >= upto:
        return
    for step in migrations_in(MIGRATIONS):
        raw.execute("BEGIN IMMEDIATE")
        try:
            if _version(raw) < step.number <= upto:
                raw.execute(step.statements)
                raw.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {step.number}")
            raw.execute("COMMIT")
        finally:
            if raw.in_transaction:
                raw.execute("ROLLBACK")


def checked_version(raw: apsw.Connection, path: Path) -> int:
    """Return the version of a file's schema; raises `StoreUnavailable` for a database of another program."""
    with raw:  # one view of the file, whoever is making its schema at this moment
        tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_schema")}
        application, version = raw.pragma("application_id"), _version(raw)
    is_ours = application == APPLICATION_ID or not tables
    if tables >= _OUR_TABLES and not (is_ours and 0 < version <= _LAST_POSSIBLE_VERSION):
        raise apsw.CorruptError("the header of the file is damaged")
    if not is_ours:
        raise StoreUnavailable(
            f"{path} is a database of another program. Move it away, or choose another profile with -p."
        )
    return version


def _keep_log(raw: apsw.Connection, patience: float) -> None:
    """Have writes kept in a log beside the file; SQLite does not wait for others by itself when it switches to that."""
    deadline = time.monotonic() + patience
    while True:
        try:
            raw.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _version(raw: apsw.Connection) -> int:
    return int(raw.pragma("user_version"))
