"""Identity of a store's file, to detect that it was moved, replaced or deleted."""

import os
from contextlib import suppress
from pathlib import Path

import apsw

from talaria.core.errors import StoreGone

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
        from talaria.storage.sqlite.rescue import rescue  # noqa: PLC0415 (loaded when the file was deleted)

        self._rescued = rescue(self._path, raw)

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
