"""Notifications between processes on one SQLite file, as rows that commits add and listeners poll."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from talaria.core.errors import StoreError
from talaria.storage.async_store import Deliver, Notifications
from talaria.storage.sqlite.connection import translate_error
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store_file import OriginalFile, StoreLock

if TYPE_CHECKING:  # loaded only for long-lived subscriptions
    from talaria.storage.sqlite.inotify import InotifyWatch


_MIN_PAUSE = 0.0005
_AWAKE_SECONDS = 5.0
_AWAKE_AFTER_COMMIT = 0.1
_MAX_MISSED = 3


class PollSchedule:
    """Times at which to poll for commits, in seconds of any monotonic clock.

    After a wake-up by the watch the pauses grow up to ``every`` seconds, because the log is written before the commit
    is visible, and a rolled-back commit never becomes visible. After a commit it stays awake briefly, since another
    may have started.
    """

    def __init__(self, every: float, now: float) -> None:
        self.pause = _MIN_PAUSE
        self._every = every
        self._awake_until = now + _AWAKE_AFTER_COMMIT
        self._was_asleep = False
        self._missed = 0

    @property
    def trusts_watch(self) -> bool:
        """Return whether the watch has reported at least one of the last commits found while asleep."""
        return self._missed < _MAX_MISSED

    def is_asleep(self, now: float) -> bool:
        """Return whether to wait for the watch; otherwise poll after ``pause`` seconds."""
        self._was_asleep = now >= self._awake_until
        return self._was_asleep

    def record_poll(self, now: float, *, wakeup: bool, found: bool) -> None:
        """Record a poll: whether the watch reported a write before it, and whether it found a commit."""
        self.pause = _MIN_PAUSE if self._was_asleep else min(2 * self.pause, self._every)
        if wakeup:
            self._missed = 0
        elif found and self._was_asleep:
            self._missed += 1
        if found:
            self._awake_until, self.pause = now + _AWAKE_AFTER_COMMIT, self._every
        elif wakeup:
            self._awake_until = now + _AWAKE_SECONDS


log = logging.getLogger(__name__)
_POLL_INTERVAL = 0.04
_RETRY_SECONDS = 1.0
_WATCH_AFTER = 2.0
_WATCH_TIMEOUT = 1.0  # seconds between polls while the watch reports nothing
_NOTIFICATIONS_AFTER = "SELECT topic, seq FROM notifications WHERE seq > ? ORDER BY seq"


def open_notifications(path: Path, options: SqliteOptions) -> Notifications:
    """Return the notifications of the store in a file."""
    return Notifications(CommitListener(path, original=options.original), max_interval=options.poll_seconds)


class FileChanges:
    """Detection of commits to a file, and the topics they notified; one check takes microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_file = StoreLock(path)
        try:
            self._raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            self._lock_file.end()
            raise translate_error(error, str(path)) from error
        self._version = 0  # so the first call of `look` finds a change
        self._last_seq: int | None = None

    def look(self) -> bool:
        """Return whether any process has committed since the last call; always true at first."""
        before = self._version
        try:
            self._version = int(self._raw.execute("PRAGMA data_version").get)
        except apsw.BusyError:  # another process is recovering the log; the next call finds the change
            return False
        except apsw.Error as error:
            raise translate_error(error, str(self._path)) from error
        return self._version != before

    def read_notified(self) -> Mapping[str, int] | None:
        """Return the topics notified since the last call, with their latest sequence numbers.

        ``None`` means every topic: on the first call, and when unread rows have been deleted.
        """
        try:
            if self._last_seq is None:
                self._last_seq = int(self._raw.execute("SELECT coalesce(max(seq), 0) FROM notifications").get)
                return None
            rows = self._raw.execute(_NOTIFICATIONS_AFTER, (self._last_seq,)).fetchall()
        except apsw.BusyError:  # another process is recovering the log
            self._last_seq = None
            return None
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate_error(error, str(self._path)) from error
        notified = {str(topic): int(str(seq)) for topic, seq in rows}
        if notified:
            expected, self._last_seq = self._last_seq + 1, int(str(rows[-1][1]))
            if int(str(rows[0][1])) != expected:
                return None
        return notified

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            self._raw.close()
        except apsw.Error as error:
            raise translate_error(error, str(self._path)) from error
        finally:
            self._lock_file.end()


class CommitListener:
    """`NotificationListener` implementation that polls for commits on one thread while there are subscriptions.

    It polls every ``every`` seconds at first. After ``watch_after`` seconds it polls when inotify reports a write to
    the file's ``log``.
    """

    def __init__(
        self,
        path: Path,
        *,
        every: float = _POLL_INTERVAL,
        watch_after: float = _WATCH_AFTER,
        log: Path | None = None,
        original: OriginalFile | None = None,
    ) -> None:
        self._path = path
        self._original = original
        self._every = every
        self._watch_after = watch_after
        self._log = log or Path(f"{path}-wal")
        self._period: _ListeningPeriod | None = None
        self._threads: list[threading.Thread] = []

    def listen(self, deliver: Deliver) -> None:
        """Start a thread that polls for commits."""
        self._period = _ListeningPeriod()
        arguments = (deliver, self._period)
        thread = threading.Thread(target=self._serve, args=arguments, name="store-notifications", daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()

    def stop_listening(self) -> None:
        """Tell the thread to end, without waiting for it."""
        period, self._period = self._period, None
        if period is not None:
            period.end()

    def close(self) -> None:
        """Stop listening and wait for the threads to end."""
        self.stop_listening()
        for thread in self._threads:
            thread.join()

    def _serve(self, deliver: Deliver, period: "_ListeningPeriod") -> None:
        while period.lasts:
            try:
                if self._original is not None:
                    self._original.check()
                with closing(FileChanges(self._path)) as changes:
                    watch = _CommitWatcher(changes, deliver, period, self._every)
                    watch.poll_for(self._watch_after)
                    watch.listen(self._log)
                    watch.poll_for(None)
            except StoreError as error:
                log.debug("can't detect commits of other processes: %s", error)
                period.wait(_RETRY_SECONDS)


class _CommitWatcher:
    """Poller of one file during a listening period; calls ``deliver`` with notified topics."""

    def __init__(self, changes: FileChanges, deliver: Deliver, period: "_ListeningPeriod", every: float) -> None:
        self._changes = changes
        self._deliver = deliver
        self._period = period
        self._every = every

    def poll_for(self, seconds: float | None) -> None:
        """Poll at fixed intervals for ``seconds``, or until the period ends."""
        until = None if seconds is None else time.monotonic() + seconds
        while self._period.lasts and (until is None or time.monotonic() < until):
            self._poll()
            self._period.wait(self._every)

    def listen(self, path: Path) -> None:
        """Poll when this file is written, until the period ends or the watch misses several commits."""
        try:
            from talaria.storage.sqlite.inotify import InotifyWatch  # noqa: PLC0415 (loaded for long waits; not on every system)

            inotify_watch = InotifyWatch(path)
        except (ImportError, OSError) as error:
            log.debug("the system doesn't report writes to the log: %s", error)
            return
        schedule = PollSchedule(self._every, time.monotonic())
        with self._period.listening(inotify_watch):
            while self._period.lasts and schedule.trusts_watch:
                if schedule.is_asleep(time.monotonic()):
                    wakeup = inotify_watch.wait(_WATCH_TIMEOUT)
                else:
                    self._period.wait(schedule.pause)
                    wakeup = inotify_watch.has_changed()
                found = self._poll()
                schedule.record_poll(
                    time.monotonic(), wakeup=wakeup or (found and inotify_watch.has_changed()), found=found
                )

    def _poll(self) -> bool:
        found = self._changes.look()
        if found:
            notified = self._changes.read_notified()
            if notified is None or notified:
                self._deliver(notified)
        return found


class _ListeningPeriod:
    """Time from `listen` to `stop_listening`.

    Uses a plain lock, because a `threading.Event` costs nearly twice as much.
    """

    def __init__(self) -> None:
        self.lasts = True
        self._lock = threading.Lock()
        self._lock.acquire()
        self._watch_lock = threading.Lock()
        self._inotify_watch: InotifyWatch | None = None

    @contextmanager
    def listening(self, inotify_watch: "InotifyWatch") -> Iterator[None]:
        """Interrupt a watch when the period ends, and close it after the block."""
        with closing(inotify_watch):
            self._inotify_watch = inotify_watch
            try:
                yield
            finally:
                with self._watch_lock:
                    self._inotify_watch = None

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or when the period ends."""
        if self.lasts:
            self._lock.acquire(timeout=seconds)

    def end(self) -> None:
        self.lasts = False
        self._lock.release()
        with self._watch_lock:
            if self._inotify_watch is not None:
                self._inotify_watch.silence()
