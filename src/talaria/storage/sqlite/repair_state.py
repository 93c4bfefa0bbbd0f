"""Detection of unfinished repairs and lost stores, before the file is created or opened."""

import os
from pathlib import Path

from talaria.core.errors import StoreCorrupt, StoreMissing
from talaria.storage.sqlite.check_record import CheckRecord

_UNFINISHED = (".recovering", ".recovered")


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


def _has_content(path: Path) -> bool:
    """Return whether another process has just created the store: it writes its record after its content."""
    try:
        return path.stat().st_size > 0
    except OSError:  # removed since
        return False


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
