"""The file of a store: its identity, the lock that shows its use, and a copy if it is deleted."""

import errno
import fcntl
import os
import time
from contextlib import closing, suppress
from pathlib import Path

import apsw

from talaria.core.errors import Refused, StoreFull, StoreGone, StoreUnavailable
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


class OriginalFile:
    """The file that was opened first; create before the first write, close after the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path)
        # O_PATH does not open the file: closing an ordinary descriptor would release SQLite's locks.
        self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else -1
        self._rescued = ""

    def check(self) -> None:
        """Raise `StoreGone` if the path no longer leads to this file; writes to it would be lost."""
        with suppress(OSError):
            if _identity(self._path) == self._identity:
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


def _identity(path: Path) -> tuple[int, int]:
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
