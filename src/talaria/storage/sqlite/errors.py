"""Translation of SQLite errors to store errors."""

import os
from pathlib import Path

import apsw

from talaria.core.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreUnavailable

_FULL = "couldn't be written: its disk is full. Free some space and try again."
_READ_ONLY = "can't be written: its file system is read-only."
_MIN_FREE = 64 * 1024  # bytes: SQLite needs half of that to open a file
_DISK_ERRORS = (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError)  # for example of a disk that cannot be written

_ERROR_MAP: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError], str], ...] = (
    (apsw.BusyError, StoreBusy, "was locked by another process for too long. Try again in a moment."),
    (apsw.FullError, StoreFull, _FULL),
    (
        (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError),
        StoreCorrupt,
        "is damaged. Run `talaria doctor --fix`: it recovers what can be read and keeps the damaged file.",
    ),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        StoreUnavailable,
        "can't be opened for writing. Check that you own the file and its folder.",
    ),
    (apsw.IOError, StoreUnavailable, "can't be read or written. Check the disk."),
)


def translate_error(error: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Return a `StoreError` whose message tells the user what to do."""
    if isinstance(error, _DISK_ERRORS) and (cause := _find_disk_problem(path)) is not None:
        return cause
    for engine_error, store_error, advice in _ERROR_MAP:
        if isinstance(error, engine_error):
            return store_error(f"{path} {advice}")
    return StoreError(f"{path}: {error}")


def is_disk_full(path: str) -> bool:
    """Return whether the disk of a file has less than 64 KiB free."""
    disk = os.statvfs(Path(path).parent)
    return disk.f_bavail * disk.f_frsize < _MIN_FREE


def _find_disk_problem(path: str) -> StoreError | None:
    """Return an error for a read-only or full disk, or ``None``."""
    try:
        if os.statvfs(Path(path).parent).f_flag & os.ST_RDONLY:
            return StoreUnavailable(f"{path} {_READ_ONLY}")
        return StoreFull(f"{path} {_FULL}") if is_disk_full(path) else None
    except OSError:
        return None
