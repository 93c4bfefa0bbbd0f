"""One gateway on this machine speaks for an account of a network, whichever profile has its token."""

import fcntl
import hashlib
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from talaria.core.errors import Refused


def hold_account(folder: Path, name: str, secrets: Sequence[str], store: str, stack: AsyncExitStack) -> None:
    """Hold an account until ``stack`` ends; raises `Refused` while a gateway over another store holds it.

    ``folder`` is that of the locks. Workers over one ``store`` hold it together: they agree there on who receives.
    """
    digest = hashlib.sha256("\0".join([name, *secrets]).encode()).hexdigest()[:24]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / f"{name}-{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, lock)
    mine = hashlib.sha256(store.encode()).hexdigest()
    _settle(lock, mine)
    holder, _, pid = os.pread(lock, 200, 0).decode().partition(" ")
    if holder != mine:
        fcntl.flock(lock, fcntl.LOCK_UN)
        raise Refused(
            f"{name}: the gateway of another profile, process {pid.strip()}, uses this account. An account answers"
            " in one profile at a time: end that one, or give this profile an account of its own."
        )


def _settle(lock: int, mine: str) -> None:
    """Write who we are if nobody holds it, and hold it with those who do."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{mine} {os.getpid()}\n".encode(), 0)
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits for whoever is about to write, and for nobody else
