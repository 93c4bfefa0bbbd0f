"""Open a SQLite file that cannot be written, on a full disk or a read-only file system, to read it."""

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
from talaria.storage.migrations import LATEST
from talaria.storage.sqlite.connection import SqliteConnection
from talaria.storage.sqlite.opening import DEFAULTS, SqliteOptions, checked_version
from talaria.storage.sqlite.presence import Presence


def open_read_only(path: Path, refusal: StoreError, options: SqliteOptions = DEFAULTS) -> ConnectionDatabase:
    """Return a store that can be read; every write raises ``refusal``, and so does this where reading fails too."""
    with ExitStack() as stack:
        stack.callback(Presence(path, read_only=True).end)
        try:
            raw = _opened(path, stack.callback)
            stack.callback(raw.close, True)
            if checked_version(raw, path) != LATEST:
                raise refusal
        except apsw.Error:
            raise refusal from None
        closing = stack.pop_all().close
    connection = SqliteConnection(
        str(path), raw, options.clock, options.worker or new_worker_id(), closing=closing, refusal=refusal
    )
    return ConnectionDatabase(connection)


def _opened(path: Path, at_end: Callable[[Callable[[], object]], object]) -> apsw.Connection:
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        # The index of the log is kept in memory then: there may be no space for the file that processes share.
        raw.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY")
        return raw
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        folder = TemporaryDirectory(prefix="talaria-")
        at_end(folder.cleanup)
        copy = Path(folder.name) / path.name
        for companion in ("", "-wal"):
            shutil.copyfile(f"{path}{companion}", f"{copy}{companion}")
        return apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    address = f"file:{quote(str(path))}?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
