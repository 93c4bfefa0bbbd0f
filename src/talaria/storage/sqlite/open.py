"""Opening of a SQLite store: create or migrate the file, refuse databases of other programs."""

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
from talaria.storage.migrations import LATEST_SCHEMA, check_not_newer, list_migrations
from talaria.storage.sqlite.connection import MIGRATIONS, SqliteConnection, translate_error
from talaria.storage.sqlite.store_file import (
    CheckRecord,
    OriginalFile,
    StoreLock,
    check_not_interrupted,
    check_not_lost,
    check_not_rescued,
    is_used,
)

APPLICATION_ID = 0x54414C41  # "TALA", shown by tools like file(1)
_OUR_TABLES = {"sessions", "messages", "arrivals"}
_LAST_POSSIBLE_VERSION = 9999  # migrations are numbered with four digits
_PAUSE = 0.005
_CREATION_TIMEOUT = 0.2  # seconds; enough for another process to finish creating the file


class SqliteOptions(Struct, frozen=True):
    """Options for opening a SQLite store.

    ``on_commit`` is called after each commit with the connection, the database name and the length of the log in pages,
    and replaces SQLite's automatic checkpoints. Subscriptions wake at least every ``poll_seconds``. If ``original`` is
    given, no other file is opened, created or written.
    """

    busy_timeout_seconds: float = 5.0
    on_commit: Callable[[apsw.Connection, str, int], int] | None = None
    clock: Clock = SystemClock()
    worker: WorkerId | None = None
    poll_seconds: float = 1.0
    original: OriginalFile | None = None


DEFAULTS = SqliteOptions()


def open_sqlite(path: Path, options: SqliteOptions = DEFAULTS) -> ConnectionDatabase:
    """Open the store in a file, which is created or migrated if needed."""
    is_new = options.original is None and _create_if_missing(path)
    if options.original is None:
        CheckRecord(path).note_unclean_end(options.clock.now())
    else:
        options.original.check()
    lock = StoreLock(path)
    try:
        if options.original is None:
            check_not_interrupted(path)
        raw = open_raw(path, options)
    except BaseException:
        lock.end()
        raise
    if is_new:
        CheckRecord(path).write("sound", options.clock.now())
    worker = options.worker or new_worker_id()
    return ConnectionDatabase(
        SqliteConnection(str(path), raw, options.clock, worker, closing=lock.end, original=options.original),
        on_corruption=lambda: CheckRecord(path).write("damaged", options.clock.now()),
    )


def _create_if_missing(path: Path) -> bool:
    """Create the file if it does not exist and return whether it was created.

    Raises `StoreGone` if a process still uses a file that was removed, and `StoreMissing` if there is a copy of it.
    """
    check_not_lost(path)
    if _exists(path):
        return False
    deadline = time.monotonic() + _CREATION_TIMEOUT
    while is_used(path) and not _exists(path):  # in this order: a process that uses the file has created it before
        if time.monotonic() > deadline:
            raise StoreGone(
                f"{path} is missing, but a running process still uses it; see `talaria gateway status`."
                " Put the file back, or stop that process first."
            )
        time.sleep(_PAUSE)
    if not _exists(path):
        check_not_rescued(path)
    CheckRecord(path).forget()
    create_private_file(path)
    return True


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # creating or opening the file reports the error
        return True


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can access, unless it exists."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        error_type = StoreFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreUnavailable
        raise error_type(f"{path} can't be created: {error.strerror}.") from error


def open_raw(path: Path, options: SqliteOptions) -> apsw.Connection:
    """Return a connection to a file, with its schema migrated to the current version."""
    raw: apsw.Connection | None = None
    try:
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        raw.set_busy_timeout(int(options.busy_timeout_seconds * 1000))
        check_not_newer(check_version(raw, path), str(path))
        _enable_wal(raw, options.busy_timeout_seconds)
        raw.execute("PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY")
        raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # no new query plan for each bound value
        if options.on_commit is not None:
            raw.set_wal_hook(options.on_commit)
        migrate(raw)
        return raw
    except BaseException as error:
        if raw is not None:
            raw.close(force=True)
        if isinstance(error, apsw.SQLError):  # none of these statements fails on an undamaged file
            raise translate_error(apsw.CorruptError(str(error)), str(path)) from error
        if isinstance(error, apsw.Error):
            raise translate_error(error, str(path)) from error
        raise


def migrate(raw: apsw.Connection, upto: int = LATEST_SCHEMA) -> None:
    """Run all pending migrations in one transaction; processes that start together wait for each other."""
    if _read_version(raw) >= upto:
        return
    raw.execute("BEGIN IMMEDIATE")
    try:
        version = _read_version(raw)  # another process may have run them meanwhile
        for step in list_migrations(MIGRATIONS):
            if version < step.number <= upto:
                raw.execute(step.statements)
                raw.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {step.number}")
        raw.execute("COMMIT")
    finally:
        if raw.in_transaction:
            raw.execute("ROLLBACK")


def check_version(raw: apsw.Connection, path: Path) -> int:
    """Return the schema version of a file; raises `StoreUnavailable` for a database of another program.

    Raises `apsw.CorruptError` if the file has our tables but a damaged header.
    """
    with raw:  # one snapshot, even while another process creates the schema
        tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_schema")}
        application, version = raw.pragma("application_id"), _read_version(raw)
    is_ours = application == APPLICATION_ID or not tables
    if tables >= _OUR_TABLES and not (is_ours and 0 < version <= _LAST_POSSIBLE_VERSION):
        raise apsw.CorruptError("the header of the file is damaged")
    if not is_ours:
        raise StoreUnavailable(f"{path} belongs to another program. Move it away, or choose another profile with -p.")
    return version


def _enable_wal(raw: apsw.Connection, patience: float) -> None:
    """Switch to WAL mode, retrying while busy: SQLite's busy timeout does not cover the switch."""
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


def _read_version(raw: apsw.Connection) -> int:
    return int(raw.pragma("user_version"))
