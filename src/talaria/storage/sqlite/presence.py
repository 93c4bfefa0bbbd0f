"""Who has a store open: a lock beside the file that ends with its holder, however that ends."""

import errno
import fcntl
import os
import time
from pathlib import Path

from talaria.core.errors import Refused, StoreFull, StoreUnavailable

_PATIENCE = 0.5  # seconds: longer than another process needs to see whether the store is in use
_PAUSE = 0.005


def is_used(store: Path) -> bool:
    """Tell whether anybody holds the lock of a store."""
    if not Path(f"{store}.lock").exists():
        return False
    try:
        Presence(store, alone=True, patience=0).end()
    except Refused:
        return True
    return False


class Presence:
    """Holds the lock of a store: shared by all who use it, or alone by one who replaces the file.

    With ``read_only`` it works without a lock file if there is none: where nobody can write, nobody replaces a store.
    """

    def __init__(
        self, store: Path, *, alone: bool = False, read_only: bool = False, patience: float = _PATIENCE
    ) -> None:
        # Never the store itself: closing any descriptor of it would drop SQLite's own locks.
        self._descriptor = _open_to_read(store) if read_only else _open(store)
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
        """Let go; once is enough."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _open(store: Path) -> int:
    try:
        return os.open(f"{store}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        made = StoreFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreUnavailable
        raise made(f"{store}.lock cannot be written: {error.strerror}.") from error


def _open_to_read(store: Path) -> int:
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
