"""Hints between processes on one file: a commit is the hint, and a look every few hundredths of a second notices it."""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

from talaria.core.errors import StoreError
from talaria.storage.hints import Hints
from talaria.storage.sqlite.errors import translated
from talaria.storage.sqlite.opening import SqliteOptions
from talaria.storage.sqlite.original import Original
from talaria.storage.sqlite.presence import Presence

log = logging.getLogger(__name__)

_EVERY = 0.04
_PAUSE = 1.0


def open_hints(path: Path, options: SqliteOptions) -> Hints:
    """Return the hints of the store in a file."""
    return Hints(CommitCourier(path, original=options.original), at_least_every=options.look_seconds)


class FileChanges:
    """Tells whether anybody has committed to a file, at the cost of a few microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._presence = Presence(path)
        try:
            self._raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            self._presence.end()
            raise translated(error, str(path)) from error
        self._version = 0  # so the first look finds a change

    def look(self) -> bool:
        """Return whether there was a commit since the last look, in this process or another; the first finds one."""
        before = self._version
        try:
            self._version = int(self._raw.execute("PRAGMA data_version").get)
        except apsw.BusyError:  # somebody mends the log right now; the next look finds what changed
            return False
        except apsw.Error as error:
            raise translated(error, str(self._path)) from error
        return self._version != before

    def close(self) -> None:
        """Let go of the file."""
        try:
            self._raw.close()
        except apsw.Error as error:
            raise translated(error, str(self._path)) from error
        finally:
            self._presence.end()


class CommitCourier:
    """Implements `Courier`: carries nothing, since every commit is seen; looks only while somebody attends."""

    def __init__(self, path: Path, *, every: float = _EVERY, original: Original | None = None) -> None:
        self._path = path
        self._original = original
        self._every = every
        self._attended: _Attendance | None = None
        self._threads: list[threading.Thread] = []

    def attend(self, heard: Callable[[str | None], None]) -> None:
        """Look on a thread of its own from now on."""
        self._attended = _Attendance()
        arguments = (heard, self._attended)
        thread = threading.Thread(target=self._serve, args=arguments, name="store-hints", daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()

    def leave(self) -> None:
        """Look no more."""
        attended, self._attended = self._attended, None
        if attended is not None:
            attended.end()

    def carry(self, topic: str) -> None:
        """Do nothing: the commit before the hint says it all."""

    def close(self) -> None:
        """End, and wait for that."""
        self.leave()
        for thread in self._threads:
            thread.join()

    def _serve(self, heard: Callable[[str | None], None], attended: "_Attendance") -> None:
        while attended.lasts:
            try:
                if self._original is not None:
                    self._original.check()
                with closing(FileChanges(self._path)) as changes:
                    while attended.lasts:
                        if changes.look():
                            heard(None)
                        attended.wait(self._every)
            except StoreError as error:
                log.debug("commits of other processes are not noticed: %s", error)
                attended.wait(_PAUSE)


class _Attendance:
    """A time that somebody ends; a bare lock, because each wait for a `threading.Event` costs nearly twice as much."""

    def __init__(self) -> None:
        self.lasts = True
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Return when the time is up, or at the end."""
        if self.lasts:
            self._lock.acquire(timeout=seconds)

    def end(self) -> None:
        self.lasts = False
        self._lock.release()
