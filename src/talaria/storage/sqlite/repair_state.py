"""Traces of a repair next to a store: what an opening has to know before it makes or opens the file."""

import os
from pathlib import Path

from talaria.core.errors import StoreCorrupt, StoreMissing
from talaria.storage.sqlite.check_record import CheckRecord

_UNFINISHED = (".recovering", ".recovered")


def is_interrupted(store: Path) -> bool:
    """Tell whether a repair of a store was begun and not finished."""
    return any(os.path.exists(f"{store}{suffix}") for suffix in _UNFINISHED)  # noqa: PTH110 (at every start)


def newest_kept(store: Path) -> Path | None:
    """Return the damaged file that the last repair of a store kept, if there is one."""
    kept = [path for path in store.parent.glob(f"{store.name}.damaged-*") if not path.name.endswith(("-wal", ".part"))]
    return max(kept, default=None)


def check_not_lost(path: Path) -> None:
    """Raise `StoreMissing` where a store is missing or empty and other files show that there was one."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = -1
    except OSError:  # the opening of the file says what is wrong
        return
    if size > 0:
        return
    kept = newest_kept(path)
    what = "missing" if size < 0 else "empty (0 bytes)"
    if kept is not None:
        raise StoreMissing(
            f"{path} is {what}, but {kept} holds a damaged store. Run `talaria doctor --fix` to recover it, or move it"
            " away to start with a new store."
        )
    if is_interrupted(path) or (size == 0 and CheckRecord(path).exists):
        raise StoreMissing(
            f"{path} is {what} although it held a store. Put back a copy of it, or run `talaria doctor --fix` to start"
            " with a new store."
        )


def check_not_interrupted(path: Path) -> None:
    """Raise `StoreCorrupt` where a repair has to be finished first; to be called by a holder of the store's lock."""
    if is_interrupted(path):
        raise StoreCorrupt(f"A repair of {path} was interrupted. Run `talaria doctor --fix` to finish it.")
