"""The embedded store for asyncio: one writer, several readers, checkpoints beside them."""

import logging
import os
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from msgspec import structs

from talaria.core.errors import StoreError
from talaria.core.ids import new_worker_id
from talaria.storage.sqlite.daily_check import DailyCheck
from talaria.storage.sqlite.opening import DEFAULTS, SqliteOptions, open_raw, open_sqlite
from talaria.storage.sqlite.original import Original
from talaria.storage.threaded import ThreadedStore

if TYPE_CHECKING:  # loaded when somebody heeds
    from talaria.storage.hints import Hints

log = logging.getLogger(__name__)

_LONG_LOG_PAGES = 4_000  # where there is space; the rest of a log may be a quarter, the longest four times that
_SHORTEST_LOG_PAGES = 64
_PAGE_BYTES = 4096
_SHARE_OF_DISK = 16  # a long log takes no more than one part in so many of what is free
_PAGES_BETWEEN_LOOKS = 64


def open_sqlite_store(path: Path, options: SqliteOptions = DEFAULTS, *, readers: int = 2) -> ThreadedStore:
    """Return the store in a file; a file that cannot be used is told at once, not at the first write."""
    options = structs.replace(options, worker=options.worker or new_worker_id())
    open_sqlite(path, options).close()
    original = Original(path)
    options = structs.replace(options, original=original)
    checkpoints = _Checkpoints(path, options)
    check = DailyCheck(path, options.clock)
    check.start()

    def end() -> None:
        check.stop()
        checkpoints.stop()
        original.close()

    hooked = structs.replace(options, on_commit=checkpoints.committed)
    return ThreadedStore(
        lambda: open_sqlite(path, hooked),
        writers=1,
        readers=readers,
        open_hints=lambda: _open_hints(path, options),
        carries_hints=False,
        closing=end,
    )


def _open_hints(path: Path, options: SqliteOptions) -> "Hints":
    hints: Hints = import_module("talaria.storage.sqlite.hints").open_hints(path, options)
    return hints


class _Checkpoints:
    """Moves the write-ahead log into the file: most of it on a thread of its own, so that no commit waits for it.

    While that thread works the writer goes on, and only a log that was moved whole begins anew. So the writer
    moves the little that is left, in the pause that its commit is. Where the disk has little space the log is kept
    short: on a full disk it could not be moved into the file any more.
    """

    def __init__(self, path: Path, options: SqliteOptions) -> None:
        self._path = path
        self._options = options
        self._wanted = threading.Event()
        self._moving = False
        self._moved = 0
        self._long = _LONG_LOG_PAGES
        self._looked_at = 0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def committed(self, writer: apsw.Connection, _name: str, pages: int) -> int:
        """Hear of the log's length after each commit; SQLite calls this on the writer's thread."""
        if not 0 <= pages - self._looked_at < _PAGES_BETWEEN_LOOKS:
            self._looked_at, self._long = pages, _long_log(self._path, pages)
        if pages < self._long:
            self._moved = 0
        elif pages - self._moved <= self._long // 4 or pages >= 4 * self._long:
            self._moved = 0
            _checkpoint(writer)
        elif not self._moving:
            self._moving = True
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="store-checkpoints", daemon=True)
                self._thread.start()
        return apsw.SQLITE_OK

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        raw: apsw.Connection | None = None
        while self._wanted.wait() and not self._stopping:
            self._wanted.clear()
            raw = raw or self._opened()
            self._moved = _checkpoint(raw) if raw else 0
            self._moving = False
        if raw is not None:
            raw.close(True)

    def _opened(self) -> apsw.Connection | None:
        try:
            if self._options.original is not None:
                self._options.original.check()
            return open_raw(self._path, self._options)
        except StoreError as error:
            log.warning("a checkpoint of the store has to wait: %s", error)
            return None


def _long_log(path: Path, pages: int) -> int:
    """Return at how many pages a log is long, by the space on its disk."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return _LONG_LOG_PAGES
    usable = disk.f_bavail * disk.f_frsize // _PAGE_BYTES + pages
    return min(max(usable // _SHARE_OF_DISK, _SHORTEST_LOG_PAGES), _LONG_LOG_PAGES)


def _checkpoint(raw: apsw.Connection) -> int:
    """Move what can be moved now, and return how many pages of the log are moved."""
    try:
        with suppress(apsw.BusyError):  # somebody else makes one right now
            return raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[1]
    except apsw.Error as error:  # what was committed is safe in the log
        log.warning("a checkpoint of the store has to wait: %s", error)
    return 0
