"""The file of a store, told from another one that has its name later."""

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import apsw

from talaria.core.errors import StoreGone

_MOVED = (
    "{path} is gone: it was moved away while it was in use. Nothing is written until it is there again, with the files"
    " beside it: put it back."
)
_REPLACED = (
    "{path} is another file than the one that was opened: nothing is written. Put the old one back, or start this"
    " program again to go on with the new one."
)
_DELETED = (
    "{path} was deleted while it was in use: nothing is written. {rescued}End this program, put a copy in its place,"
    " and start it again."
)


class Original:
    """The file that was opened first; made before anybody writes, and closed behind the last who does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path)
        # Names the file without opening it: a descriptor that is closed would take SQLite's locks along.
        self._name = os.open(path, os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else -1
        self._rescued = ""

    def check(self) -> None:
        """Raise `StoreGone` unless it is there under its name: what is written to it then, nobody would find again."""
        with suppress(OSError):
            if _identity(self._path) == self._identity:
                self._rescued = ""
                return
        raise StoreGone(self._told())

    def rescue(self, raw: apsw.Connection) -> None:
        """Copy a file that was deleted, as long as this connection holds it; once is enough."""
        if not self._is_deleted or self._rescued:
            return
        self._rescued = import_module("talaria.storage.sqlite.rescue").rescue(self._path, raw)

    def close(self) -> None:
        """Let go of it."""
        if self._name >= 0:
            os.close(self._name)
            self._name = -1

    @property
    def _is_deleted(self) -> bool:
        return self._name >= 0 and not os.fstat(self._name).st_nlink

    def _told(self) -> str:
        if self._is_deleted:
            return _DELETED.format(path=self._path, rescued=self._rescued)
        return (_REPLACED if self._path.exists() else _MOVED).format(path=self._path)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
