"""Hints between processes on one file: a commit is the hint, and a look that costs next to nothing notices it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from talaria.core.errors import StoreError
from talaria.storage.hints import Hints
from talaria.storage.sqlite.errors import translated
from talaria.storage.sqlite.opening import SqliteOptions
from talaria.storage.sqlite.original import Original
from talaria.storage.sqlite.presence import Presence
from talaria.storage.sqlite.vigil import Vigil

if TYPE_CHECKING:  # loaded by those who attend for longer
    from talaria.storage.sqlite.file_bell import FileBell

log = logging.getLogger(__name__)

_EVERY = 0.04
_PAUSE = 1.0
_A_WHILE = 2.0
_SELDOM = 1.0  # seconds between looks while the bell is silent


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
    """Implements `Courier`: carries nothing, since every commit is seen; looks only while somebody attends.

    It looks ``every`` so many seconds at first. After ``listens_after`` seconds it listens to the system, which tells
    when the ``log`` beside the file is written to, and looks then.
    """

    def __init__(
        self,
        path: Path,
        *,
        every: float = _EVERY,
        listens_after: float = _A_WHILE,
        log: Path | None = None,
        original: Original | None = None,
    ) -> None:
        self._path = path
        self._original = original
        self._every = every
        self._listens_after = listens_after
        self._log = log or Path(f"{path}-wal")
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
                    watch = _Watch(changes, lambda: heard(None), attended, self._every)
                    watch.look_for(self._listens_after)
                    watch.listen(self._log)
                    watch.look_for(None)
            except StoreError as error:
                log.debug("commits of other processes are not noticed: %s", error)
                attended.wait(_PAUSE)


class _Watch:
    """Looks at a file while somebody attends, and calls ``changed`` when there was a commit."""

    def __init__(
        self, changes: FileChanges, changed: Callable[[], None], attended: "_Attendance", every: float
    ) -> None:
        self._changes = changes
        self._changed = changed
        self._attended = attended
        self._every = every

    def look_for(self, seconds: float | None) -> None:
        """Look at a steady pace for so long, or until the end."""
        until = None if seconds is None else time.monotonic() + seconds
        while self._attended.lasts and (until is None or time.monotonic() < until):
            self._look()
            self._attended.wait(self._every)

    def listen(self, path: Path) -> None:
        """Look when this file is written to, until the end, or until commits come without that being told."""
        try:
            bell: FileBell = import_module("talaria.storage.sqlite.file_bell").FileBell(path)
        except (ImportError, OSError) as error:
            log.debug("the system does not tell of commits: %s", error)
            return
        vigil = Vigil(self._every, time.monotonic())
        with self._attended.listening(bell):
            while self._attended.lasts and vigil.trusts_bell:
                if vigil.is_asleep(time.monotonic()):
                    rung = bell.wait(_SELDOM)
                else:
                    self._attended.wait(vigil.pause)
                    rung = bell.has_rung()
                found = self._look()
                vigil.looked(time.monotonic(), rung=rung or (found and bell.has_rung()), found=found)

    def _look(self) -> bool:
        found = self._changes.look()
        if found:
            self._changed()
        return found


class _Attendance:
    """A time that somebody ends; a bare lock, because each wait for a `threading.Event` costs nearly twice as much."""

    def __init__(self) -> None:
        self.lasts = True
        self._lock = threading.Lock()
        self._lock.acquire()
        self._listening = threading.Lock()
        self._bell: FileBell | None = None

    @contextmanager
    def listening(self, bell: "FileBell") -> Iterator[None]:
        """Silence a bell at the end, and close it behind the block."""
        with closing(bell):
            self._bell = bell
            try:
                yield
            finally:
                with self._listening:
                    self._bell = None

    def wait(self, seconds: float) -> None:
        """Return when the time is up, or at the end."""
        if self.lasts:
            self._lock.acquire(timeout=seconds)

    def end(self) -> None:
        self.lasts = False
        self._lock.release()
        with self._listening:
            if self._bell is not None:
                self._bell.silence()
