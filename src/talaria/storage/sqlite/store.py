"""The embedded store for asyncio: one writer, several readers, checkpoints beside them."""

import logging
import threading
from contextlib import suppress
from pathlib import Path

import apsw
from msgspec import structs

from talaria.core.ids import new_worker_id
from talaria.storage.sqlite.opening import DEFAULTS, SqliteOptions, open_raw, open_sqlite
from talaria.storage.threaded import ThreadedStore

log = logging.getLogger(__name__)

_CHECKPOINT_PAGES = 4000
_LARGE_LOG_PAGES = 16_000


def open_sqlite_store(path: Path, options: SqliteOptions = DEFAULTS, *, readers: int = 2) -> ThreadedStore:
    """Return the store in a file; a file that cannot be used is told at once, not at the first write."""
    options = structs.replace(options, worker=options.worker or new_worker_id())
    open_sqlite(path, options).close()
    checkpoints = _Checkpoints(path, options)

    hooked = structs.replace(options, on_commit=checkpoints.committed)
    return ThreadedStore(lambda: open_sqlite(path, hooked), writers=1, readers=readers, closing=checkpoints.stop)


class _Checkpoints:
    """Moves the write-ahead log into the file on a thread of its own, so that no commit waits for it."""

    def __init__(self, path: Path, options: SqliteOptions) -> None:
        self._path = path
        self._options = options
        self._wanted = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def committed(self, writer: apsw.Connection, _name: str, pages: int) -> int:
        """Hear of the log's length after each commit; SQLite calls this on the writer's thread."""
        if pages >= _CHECKPOINT_PAGES:
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="store-checkpoints", daemon=True)
                self._thread.start()
        if pages >= _LARGE_LOG_PAGES:
            # The thread has moved most of it: what is left is little, and only a pause lets the log begin anew.
            _checkpoint(writer)
        return apsw.SQLITE_OK

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        raw = open_raw(self._path, self._options)
        while self._wanted.wait() and not self._stopping:
            self._wanted.clear()
            _checkpoint(raw)
        raw.close()


def _checkpoint(raw: apsw.Connection) -> None:
    try:
        with suppress(apsw.BusyError):  # somebody else makes one right now
            raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.Error as error:  # what was committed is safe in the log
        log.warning("a checkpoint of the store has to wait: %s", error)
