"""Files: the mask of their modes, strict for Talaria's own, and values cached until a file changes."""

import os
import stat
import time
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

T = TypeVar("T")
_MAX_ENTRIES = 512
_MIN_AGE_NS = 2_000_000_000  # a file changed this recently may change again without a new modification time
_FileVersion = tuple[int, int, int]
_PRIVATE = 0o077
INHERIT = -1  # for the parameter ``umask`` of `subprocess`: leave it unchanged


class FileCache(Generic[T]):
    """A cache of values made from text files of at most ``most`` characters."""

    def __init__(self, make: Callable[[str], T], *, most: int = -1) -> None:
        self._make = make
        self._most = most
        self._values: dict[str, tuple[_FileVersion, T]] = {}

    def get(self, path: str) -> T | None:
        """Return the value for the current content of a file; ``None`` if it doesn't exist. Raises `OSError`."""
        try:
            status = os.stat(path)  # noqa: PTH116 (in bare strings, as every conversation begins with this)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._values.get(path)
        if known is not None and known[0] == version:
            return known[1]
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            value = self._make(file.read(self._most))
        if time.time_ns() - status.st_mtime_ns > _MIN_AGE_NS:
            self._remember(path, version, value)
        return value

    def _remember(self, path: str, version: _FileVersion, value: T) -> None:
        self._values.pop(path, None)
        if len(self._values) >= _MAX_ENTRIES:
            del self._values[next(iter(self._values))]
        self._values[path] = (version, value)


@cache
def restrict_umask() -> int:
    """Make all files that this process creates private, and return the mask it was started with.

    Called once, when one of our programs starts; in a library the mask belongs to the host program.
    """
    return os.umask(_PRIVATE)


def person_umask() -> int:
    """Return the mask for commands that people ask for; `INHERIT` if `restrict_umask` was not called."""
    return restrict_umask() if restrict_umask.cache_info().currsize else INHERIT


def restore_umask() -> None:
    """Restore the original mask, for a program that replaces this one."""
    if person_umask() != INHERIT:
        os.umask(person_umask())


def share_like(path: "os.PathLike[str] | str", folder: "os.PathLike[str] | str", usual: int) -> None:
    """Give a new file or folder of the user its usual mode; in a private folder it is private.

    ``usual`` is the mode without a mask: 0o666 for a file, 0o777 for a folder.
    """
    mask = person_umask()
    if mask != INHERIT and os.stat(folder).st_mode & _PRIVATE:  # noqa: PTH116 (pathlib is not loaded for this)
        os.chmod(path, usual & ~mask)  # noqa: PTH101 (nor for this)
