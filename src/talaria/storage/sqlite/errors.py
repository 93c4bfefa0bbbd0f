"""SQLite's errors as ours."""

import os
from pathlib import Path

import apsw

from talaria.core.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreUnavailable

_FULL = "has no space left on its disk: nothing was written. Free some and try again."
_READ_ONLY = "cannot be written: its file system is read-only."
_LEAST_FREE = 64 * 1024  # bytes: SQLite needs half of that to open a file
_CONSEQUENCES = (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError)  # of a disk that cannot be written, among others

_MEANINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError], str], ...] = (
    (apsw.BusyError, StoreBusy, "is held by another process for too long. Try again in a moment."),
    (apsw.FullError, StoreFull, _FULL),
    (
        (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError),
        StoreCorrupt,
        "is damaged. Run `talaria doctor --fix`: it keeps the file aside and recovers what can be read.",
    ),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        StoreUnavailable,
        "cannot be opened for writing. Check that the file and its folder are yours.",
    ),
    (apsw.IOError, StoreUnavailable, "cannot be read or written. Check the disk."),
)


def translated(error: apsw.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Return an error of ours that says what to do."""
    if isinstance(error, _CONSEQUENCES) and (cause := _disk_trouble(path)) is not None:
        return cause
    for theirs, ours, advice in _MEANINGS:
        if isinstance(error, theirs):
            return ours(f"{path} {advice}")
    return StoreError(f"{path}: {error}")


def is_disk_full(path: str) -> bool:
    """Tell whether there is too little space next to a file to write to it."""
    disk = os.statvfs(Path(path).parent)
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE


def _disk_trouble(path: str) -> StoreError | None:
    """Return what is wrong with the disk itself, if it can be told."""
    try:
        if os.statvfs(Path(path).parent).f_flag & os.ST_RDONLY:
            return StoreUnavailable(f"{path} {_READ_ONLY}")
        return StoreFull(f"{path} {_FULL}") if is_disk_full(path) else None
    except OSError:
        return None
