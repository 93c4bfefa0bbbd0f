"""The file mode mask: strict for the files of this process, the person's own for what they ask the agent to create."""

import os
from functools import cache

_PRIVATE = 0o077
INHERIT = -1  # for the parameter ``umask`` of `subprocess`: leave it as it is


@cache
def restrict_umask() -> int:
    """Make all files that this process creates private, and return the mask with which it was started.

    Called once, at the start of a program of ours; where Talaria is a library, the mask is the host's affair.
    """
    return os.umask(_PRIVATE)


def person_umask() -> int:
    """Return the mask for commands that people ask for; `INHERIT` where `restrict_umask` was not called."""
    return restrict_umask() if restrict_umask.cache_info().currsize else INHERIT


def restore_umask() -> None:
    """Set the mask back to what it was, for a program that takes the place of this one."""
    if person_umask() != INHERIT:
        os.umask(person_umask())


def share_like(path: "os.PathLike[str] | str", folder: "os.PathLike[str] | str", usual: int) -> None:
    """Give a new file or folder of the person the mode it would have without us; in a private folder it is private.

    ``usual`` is the mode without a mask: 0o666 for a file, 0o777 for a folder.
    """
    mask = person_umask()
    if mask != INHERIT and os.stat(folder).st_mode & _PRIVATE:  # noqa: PTH116 (pathlib is not loaded for this)
        os.chmod(path, usual & ~mask)  # noqa: PTH101 (nor for this)
