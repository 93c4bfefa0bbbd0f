"""What was made of a file, remembered until the file changes: every conversation begins with the same few."""

import os
import stat
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_KEPT = 512
_UNSETTLED = 2_000_000_000  # a file that was changed so few nanoseconds ago may change again without its time telling
_Mark = tuple[int, int, int]


class Remembered(Generic[T]):
    """Makes something of the text of files, of ``most`` characters at the most, and remembers it for each of them."""

    def __init__(self, make: Callable[[str], T], *, most: int = -1) -> None:
        self._make = make
        self._most = most
        self._made: dict[str, tuple[_Mark, T]] = {}

    def get(self, path: str) -> T | None:
        """Return what this file makes as it is now; ``None`` where there is none. Raises `OSError`."""
        try:
            status = os.stat(path)  # noqa: PTH116 (in bare strings, as every conversation begins with this)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        mark = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._made.get(path)
        if known is not None and known[0] == mark:
            return known[1]
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            made = self._make(file.read(self._most))
        if time.time_ns() - status.st_mtime_ns > _UNSETTLED:
            self._keep(path, mark, made)
        return made

    def _keep(self, path: str, mark: _Mark, made: T) -> None:
        self._made.pop(path, None)
        if len(self._made) >= _KEPT:
            del self._made[next(iter(self._made))]
        self._made[path] = (mark, made)
