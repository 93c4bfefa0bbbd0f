"""Lock file next to a store that shows whether it is in use; the kernel releases it on exit."""

import errno
import fcntl
import os
import time
from pathlib import Path

from talaria.core.errors import Refused, StoreFull, StoreUnavailable

_LOCK_TIMEOUT = 0.5  # seconds; longer than `is_used` in another process holds the lock
_PAUSE = 0.005


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
