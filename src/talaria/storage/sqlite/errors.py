"""SQLite's errors as ours."""

import apsw

from talaria.core.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreUnavailable

_MEANINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError], str], ...] = (
    (apsw.BusyError, StoreBusy, "is held by another process for too long. Try again in a moment."),
    (apsw.FullError, StoreFull, "has no space left on its disk: nothing was written. Free some and try again."),
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
    for theirs, ours, advice in _MEANINGS:
        if isinstance(error, theirs):
            return ours(f"{path} {advice}")
    return StoreError(f"{path}: {error}")
