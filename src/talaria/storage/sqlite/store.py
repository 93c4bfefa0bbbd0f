"""SQLite store for asyncio: one writer, several readers, background checkpoints and a daily check."""

import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from msgspec import structs

from talaria.contracts.clock import Clock
from talaria.core.errors import StoreError
from talaria.core.ids import new_worker_id
from talaria.storage.async_store import ThreadedStore
from talaria.storage.sqlite.open import DEFAULTS, SqliteOptions, open_raw, open_sqlite
from talaria.storage.sqlite.store_file import CheckRecord, OriginalFile

if TYPE_CHECKING:  # loaded with the first subscription
    from talaria.storage.async_store import Notifications

log = logging.getLogger(__name__)
_LONG_LOG_PAGES = 4_000  # upper limit; the writer moves up to a quarter of it, or all at four times it
_MIN_LOG_PAGES = 64
_PAGE_BYTES = 4096
_SHARE_OF_DISK = 16  # a log may take at most this fraction (1/n) of the free space
_PAGES_PER_CHECK = 64
_CHECK_DELAY = 60.0  # seconds; short-lived programs skip the check
_CHECK_INTERVAL = 3600.0


def open_sqlite_store(path: Path, options: SqliteOptions = DEFAULTS, *, readers: int = 2) -> ThreadedStore:
    """Open the store in a file; raises at once if the file cannot be used.

    Also starts the daily check.
    """
    options = structs.replace(options, worker=options.worker or new_worker_id())
    open_sqlite(path, options).close()
    original = OriginalFile(path)
    options = structs.replace(options, original=original)
    checkpointer = _Checkpointer(path, options)
    check = DailyCheck(path, options.clock)
    check.start()

    def end() -> None:
        check.stop()
        checkpointer.stop()
        original.close()

    hooked = structs.replace(options, on_commit=checkpointer.note_commit)
    return ThreadedStore(
        lambda: open_sqlite(path, hooked),
        writers=1,
        readers=readers,
        open_notifications=lambda: _open_notifications(path, options),
        closing=end,
    )


def _open_notifications(path: Path, options: SqliteOptions) -> "Notifications":
    from talaria.storage.sqlite.notifications import open_notifications  # noqa: PLC0415 (loaded with the first subscription)

    return open_notifications(path, options)


class _Checkpointer:
    """Checkpoints of the write-ahead log, mostly on a separate thread so that commits do not wait.

    The writer continues meanwhile, and a log restarts only after it was checkpointed completely. So the writer itself
    checkpoints the small remainder right after a commit. On a disk with little space the log is kept short: on a full
    disk it could no longer be checkpointed.
    """

    def __init__(self, path: Path, options: SqliteOptions) -> None:
        self._path = path
        self._options = options
        self._requested = threading.Event()
        self._moving = False
        self._moved_pages = 0
        self._long_pages = _LONG_LOG_PAGES
        self._checked_pages = 0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def note_commit(self, writer: apsw.Connection, _name: str, pages: int) -> int:
        """Decide on a checkpoint after a commit; SQLite calls this on the writer's thread.

        ``pages`` is the length of the log.
        """
        if not 0 <= pages - self._checked_pages < _PAGES_PER_CHECK:
            self._checked_pages, self._long_pages = pages, _compute_long_log(self._path, pages)
        if pages < self._long_pages:
            self._moved_pages = 0
        elif pages - self._moved_pages <= self._long_pages // 4 or pages >= 4 * self._long_pages:
            self._moved_pages = 0
            _checkpoint(writer)
        elif not self._moving:
            self._moving = True
            self._requested.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="store-checkpoints", daemon=True)
                self._thread.start()
        return apsw.SQLITE_OK

    def stop(self) -> None:
        """Stop the thread and wait for it to end."""
        self._stopping = True
        self._requested.set()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        raw: apsw.Connection | None = None
        while self._requested.wait() and not self._stopping:
            self._requested.clear()
            raw = raw or self._open_raw()
            self._moved_pages = _checkpoint(raw) if raw else 0
            self._moving = False
        if raw is not None:
            raw.close(force=True)

    def _open_raw(self) -> apsw.Connection | None:
        try:
            if self._options.original is not None:
                self._options.original.check()
            return open_raw(self._path, self._options)
        except StoreError as error:
            log.warning("a checkpoint of the store is postponed: %s", error)
            return None


def _compute_long_log(path: Path, pages: int) -> int:
    """Return the length, in pages, from which a log is checkpointed, given the free disk space."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return _LONG_LOG_PAGES
    usable = disk.f_bavail * disk.f_frsize // _PAGE_BYTES + pages
    return min(max(usable // _SHARE_OF_DISK, _MIN_LOG_PAGES), _LONG_LOG_PAGES)


def _checkpoint(raw: apsw.Connection) -> int:
    """Run a passive checkpoint and return the number of log pages moved to the file, or 0."""
    try:
        with suppress(apsw.BusyError):  # another connection is running a checkpoint
            return raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)[1]
    except apsw.Error as error:  # committed data is safe in the log
        log.warning("a checkpoint of the store is postponed: %s", error)
    return 0


class DailyCheck:
    """Integrity check that runs when the last full check is more than a day old.

    Damage is recorded and logged; the next start repairs it.
    """

    def __init__(self, store: Path, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="store-check", daemon=True)

    def start(self) -> None:
        """Start the thread; the first check runs after a minute at the earliest."""
        self._thread.start()

    def stop(self) -> None:
        """Interrupt a running check and wait for the thread to end."""
        self._stop.set()
        self._thread.join()

    def run_if_due(self) -> None:
        """Check for damage, unless a check within the last day found none."""
        record = CheckRecord(self._store)
        if record.is_due(self._clock.now()):
            try:
                self._check(record)
            except StoreError as error:
                log.warning("the daily check of the store is postponed: %s", error)

    def _serve(self) -> None:
        wait = _CHECK_DELAY
        while not self._stop.wait(wait):
            wait = _CHECK_INTERVAL
            self.run_if_due()

    def _check(self, record: CheckRecord) -> None:
        from talaria.storage.sqlite.recovery import examine  # noqa: PLC0415 (not needed at startup)

        found = examine(self._store, thorough=False, stop=self._stop)
        if found.damage:
            record.write("damaged", self._clock.now())
            log.critical(
                "%s is damaged: %s Stop Talaria and run `talaria doctor --fix`, or let the next start repair it.",
                self._store,
                " ".join(found.damage),
            )
        elif found.complete:
            record.write("sound", self._clock.now())
