"""Write small files atomically, one writer at a time."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from talaria.core.errors import ToolFailed

PATIENCE = timedelta(seconds=5)  # a writer holds the lock for milliseconds
_PAUSE = 0.005


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file so that a reader sees the old text or the new one, also after a power cut."""
    import tempfile  # noqa: PLC0415 (loaded with the first write)

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, mode)
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextmanager
def sole_writer(folder: Path, patience: timedelta = PATIENCE) -> Iterator[None]:
    """Lock a folder against other threads and processes within the block; it is created if missing."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(handle, patience)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, patience: timedelta) -> None:
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise ToolFailed("another process is writing this file; try again") from error
            time.sleep(_PAUSE)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
