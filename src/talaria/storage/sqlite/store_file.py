"""The file of a store: identity, lock, a copy if it is deleted, and the state of its checks.

SQLite deletes the write-ahead log when the last process closes the file. If there is a log although no process has the
file open, a process was killed or the machine lost power: the shutdown was unclean. This holds for any number of
processes. The next process to open the file records it, because closing the file again deletes the log.
"""

import errno
import fcntl
import os
import time
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import apsw
from msgspec import Struct

from talaria.core.errors import Refused, StoreCorrupt, StoreFull, StoreGone, StoreMissing, StoreUnavailable
from talaria.core.ids import new_id

_LOCK_TIMEOUT = 0.5  # seconds; longer than `is_used` in another process holds the lock
_PAUSE = 0.005
_MOVED = (
    "{path} was moved away while it was in use. Nothing is written until you put it back, together with the files next"
    " to it."
)
_REPLACED = (
    "{path} was replaced by another file while it was in use, so nothing is written. Put the old file back, or restart"
    " this program to use the new one."
)
_DELETED = (
    "{path} was deleted while it was in use, so nothing is written. {rescued}Stop this program, put a copy in its"
    " place, and start it again."
)
_RESCUED = "Its contents were saved to {copy}. "
_LOST = "Its contents couldn't be saved ({error}) and are lost when this program stops: back them up first. "
CheckState = Literal["sound", "unclean", "damaged", "unknown"]
_INTERVAL = timedelta(days=1)
_SEPARATOR = " "
_UNFINISHED = (".recovering", ".recovered")


def is_used(store: Path) -> bool:
    """Return whether any process holds the lock of a store."""
    if not Path(f"{store}.lock").exists():
        return False
    try:
        StoreLock(store, alone=True, patience=0).end()
    except Refused:
        return True
    return False


class StoreLock:
    """Lock of a store: shared by its users, exclusive (``alone``) for replacing the file.

    Waits up to ``patience`` seconds, then raises `Refused` for an exclusive lock and `StoreUnavailable` for a shared
    one. With ``read_only`` a missing lock file is accepted: where no process can write, none replaces the store.
    """

    def __init__(
        self, store: Path, *, alone: bool = False, read_only: bool = False, patience: float = _LOCK_TIMEOUT
    ) -> None:
        # Never lock the store itself: closing any descriptor of it would release SQLite's own locks.
        self._descriptor = _open_read_only(store) if read_only else _open_lock_file(store)
        if self._descriptor < 0:
            return
        try:
            _lock(self._descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, patience)
        except BlockingIOError as error:
            os.close(self._descriptor)
            if alone:
                raise Refused(f"{store} is in use. Stop every other Talaria process, then try again.") from error
            raise StoreUnavailable(f"{store} is being repaired by another process. Try again in a moment.") from error

    def end(self) -> None:
        """Release the lock; later calls have no effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OriginalFile:
    """The file that was opened first; create before the first write, close after the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _read_identity(path)
        # O_PATH does not open the file: closing an ordinary descriptor would release SQLite's locks.
        self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else -1
        self._rescued = ""

    def check(self) -> None:
        """Raise `StoreGone` if the path no longer leads to this file; writes to it would be lost."""
        with suppress(OSError):
            if _read_identity(self._path) == self._identity:
                self._rescued = ""
                return
        raise StoreGone(self._describe())

    def rescue(self, raw: apsw.Connection) -> None:
        """Copy a deleted file through a connection that still has it open; at most once."""
        if not self._is_deleted or self._rescued:
            return
        self._rescued = _copy_deleted(self._path, raw)

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def _is_deleted(self) -> bool:
        return self._descriptor >= 0 and not os.fstat(self._descriptor).st_nlink

    def _describe(self) -> str:
        if self._is_deleted:
            return _DELETED.format(path=self._path, rescued=self._rescued)
        return (_REPLACED if self._path.exists() else _MOVED).format(path=self._path)


class CheckRecord(Struct, frozen=True):
    """File next to a store with the result and time of the last check.

    If it is lost, the store is checked again.
    """

    store: Path

    @property
    def exists(self) -> bool:
        """Return whether a store has existed here."""
        return self._file.exists()

    @property
    def state(self) -> CheckState:
        """Result of the last check; ``unknown`` if there is no valid record."""
        found = self._read()[0]
        return found if found in {"sound", "unclean", "damaged"} else "unknown"  # type: ignore[return-value]

    @property
    def needs_check(self) -> bool:
        """Return whether to check for damage before the store is used."""
        return self.state in {"unclean", "damaged"}

    def is_due(self, now: datetime) -> bool:
        """Return whether a full check is due: none within a day, or the last one not sound.

        Also true if the recorded time is in the future, because the clock was wrong.
        """
        state, at = self._read()
        try:
            return state != "sound" or not timedelta() <= now - datetime.fromisoformat(at) < _INTERVAL
        except ValueError:
            return True

    def write(self, state: CheckState, now: datetime) -> None:
        """Write the state durably; errors of the disk are ignored."""
        with suppress(OSError):  # a full or read-only disk cannot hold a record
            descriptor = os.open(self._file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, f"{state}{_SEPARATOR}{now.isoformat()}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Delete the record before a new store is created."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def note_unclean_end(self, now: datetime) -> None:
        """Record an unclean shutdown; call before the store is opened."""
        if self._has_log() and not is_used(self.store) and not self.needs_check:
            self.write("unclean", now)

    def _has_log(self) -> bool:
        try:
            return os.stat(f"{self.store}-wal").st_size > 0  # noqa: PTH116 (runs at every start)
        except OSError:
            return False

    def _read(self) -> tuple[str, str]:
        try:
            state, _, at = self._file.read_text(encoding="utf-8").strip().partition(_SEPARATOR)
        except (OSError, UnicodeDecodeError):
            return "", ""
        return state, at

    @property
    def _file(self) -> Path:
        return Path(f"{self.store}.checked")


def is_interrupted(store: Path) -> bool:
    """Return whether a repair of a store was started but not finished."""
    return any(os.path.exists(f"{store}{suffix}") for suffix in _UNFINISHED)  # noqa: PTH110 (runs at every start)


def find_newest_damaged(store: Path) -> Path | None:
    """Return the damaged file preserved by the latest repair of a store, or ``None``."""
    damaged_files = [
        path for path in store.parent.glob(f"{store.name}.damaged-*") if not path.name.endswith(("-wal", ".part"))
    ]
    return max(damaged_files, default=None)


def check_not_lost(path: Path) -> None:
    """Raise `StoreMissing` if the store is missing or empty although other files show it existed."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = -1
    except OSError:  # opening the file reports the error
        return
    if size > 0:
        return
    damaged_files = find_newest_damaged(path)
    condition = "missing" if size < 0 else "empty (0 bytes)"
    if damaged_files is not None:
        raise StoreMissing(
            f"{path} is {condition}, but {damaged_files} holds a damaged store. Run `talaria doctor --fix` to recover"
            " it, or move it away to start with a new store."
        )
    if is_interrupted(path) or (size == 0 and CheckRecord(path).exists and not _has_content(path)):
        raise StoreMissing(
            f"{path} is {condition} although it held a store. Restore a copy, or run `talaria doctor --fix` to"
            " start with a new store."
        )


def check_not_rescued(path: Path) -> None:
    """Raise `StoreMissing` for a missing store whose contents were saved to a copy when it was deleted."""
    copy = max(path.parent.glob(f"{path.name}.rescued-*"), default=None)
    if copy is not None:
        raise StoreMissing(
            f"{path} is missing, but {copy} is a copy of it. Rename the copy to {path.name}, or move it away to start"
            " with a new store."
        )


def check_not_interrupted(path: Path) -> None:
    """Raise `StoreCorrupt` if a repair must be finished first; the caller holds the store's lock."""
    if is_interrupted(path):
        raise StoreCorrupt(f"A repair of {path} was interrupted. Run `talaria doctor --fix` to finish it.")


def _open_lock_file(store: Path) -> int:
    try:
        return os.open(f"{store}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        error_type = StoreFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreUnavailable
        raise error_type(f"{store}.lock can't be written: {error.strerror}.") from error


def _open_read_only(store: Path) -> int:
    try:
        return os.open(f"{store}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _lock(descriptor: int, kind: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)


def _read_identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _copy_deleted(path: Path, raw: apsw.Connection) -> str:
    """Copy the connection's database to a new file next to ``path`` and return a sentence for the user.

    Errors are reported in the sentence, not raised.
    """
    import logging  # noqa: PLC0415 (loaded when the file was deleted)

    copy = path.with_name(f"{path.name}.rescued-{new_id()}")
    try:
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(apsw.Connection(str(copy))) as target, target.backup("main", raw, "main") as backup:
            backup.step()
        sentence = _RESCUED.format(copy=copy)
    except (OSError, apsw.Error) as error:
        copy.unlink(missing_ok=True)
        sentence = _LOST.format(error=error)
    logging.getLogger(__name__).critical("%s was deleted while it was in use. %s", path, sentence.rstrip())
    return sentence


def _has_content(path: Path) -> bool:
    """Return whether another process has just created the store: it writes its record after its content."""
    try:
        return path.stat().st_size > 0
    except OSError:  # removed since
        return False
