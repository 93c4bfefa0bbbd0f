"""Read-only opening of a SQLite store on a full disk or a read-only file system."""

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import apsw

from talaria.core.errors import StoreError
from talaria.core.ids import new_worker_id
from talaria.storage.database import ConnectionDatabase
from talaria.storage.migrations import LATEST_SCHEMA
from talaria.storage.sqlite.connection import SqliteConnection
from talaria.storage.sqlite.open import DEFAULTS, SqliteOptions, check_version
from talaria.storage.sqlite.store_file import StoreLock


def open_read_only(path: Path, refusal: StoreError, options: SqliteOptions = DEFAULTS) -> ConnectionDatabase:
    """Return a store whose writes raise ``refusal``; raises ``refusal`` if reading fails too.

    Where the file cannot be written but has a log, both are copied to a temporary folder.
    """
    with ExitStack() as stack:
        stack.callback(StoreLock(path, read_only=True).end)
        try:
            raw = _open_raw(path, stack.callback)
            stack.callback(raw.close, force=True)
            if check_version(raw, path) != LATEST_SCHEMA:
                raise refusal
        except apsw.Error:
            raise refusal from None
        closing = stack.pop_all().close
    connection = SqliteConnection(
        str(path), raw, options.clock, options.worker or new_worker_id(), closing=closing, refusal=refusal
    )
    return ConnectionDatabase(connection)


def _open_raw(path: Path, add_cleanup: Callable[[Callable[[], object]], object]) -> apsw.Connection:
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        # Exclusive mode keeps the WAL index in memory: there may be no space for the shared-memory file.
        raw.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY")
        return raw
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        folder = TemporaryDirectory(prefix="talaria-")
        add_cleanup(folder.cleanup)
        copy = Path(folder.name) / path.name
        for companion in ("", "-wal"):
            shutil.copyfile(f"{path}{companion}", f"{copy}{companion}")
        return apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    address = f"file:{quote(str(path))}?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
