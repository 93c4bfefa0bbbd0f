"""PostgreSQL's errors as ours."""

import psycopg
from psycopg import errors

from talaria.core.errors import StoreBusy, StoreConflict, StoreError, StoreFull, StoreUnavailable

_MEANINGS: tuple[tuple[type[psycopg.Error] | tuple[type[psycopg.Error], ...], type[StoreError], str], ...] = (
    ((errors.SerializationFailure, errors.DeadlockDetected), StoreConflict, "had two writers in each other's way."),
    (
        (errors.DiskFull, errors.OutOfMemory),
        StoreFull,
        "has no space left: nothing was written. Free some on the server and try again.",
    ),
    ((errors.LockNotAvailable, errors.QueryCanceled), StoreBusy, "is held by another worker for too long. Try again."),
    (
        errors.InsufficientPrivilege,
        StoreUnavailable,
        "does not let this user in. Grant it the right to create a schema, or create the schema for it.",
    ),
    (
        errors.IdleInTransactionSessionTimeout,
        StoreUnavailable,
        "has undone what took too long: this machine was asleep, or has too much to do. Try again.",
    ),
    (
        psycopg.OperationalError,
        StoreUnavailable,
        "cannot be reached. Check that the server runs and that `store.url` is right.",
    ),
)


def translated(error: psycopg.Error, server: str) -> StoreError:
    """Return an error of ours that says what to do."""
    for theirs, ours, advice in _MEANINGS:
        if isinstance(error, theirs):
            return ours(f"{server} {advice} ({_first_line(error)})")
    return StoreError(f"{server}: {_first_line(error)}")


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
