"""The file mode mask: strict for Talaria's files, the user's own for files they ask the agent to create."""

import os
from functools import cache

_PRIVATE = 0o077
INHERIT = -1  # for the parameter ``umask`` of `subprocess`: leave it unchanged


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
