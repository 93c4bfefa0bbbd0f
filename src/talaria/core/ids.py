"""Ids: short, sortable by the time they were made, safe in file names and addresses."""

import os
import time
from typing import NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter that reads like another
_CHARACTERS = frozenset(_ALPHABET)
_LENGTH = 16


def new_id() -> str:
    """Return 16 characters: nine of the time in milliseconds, seven of chance."""
    return _base32(time.time_ns() // 1_000_000, 9) + _base32(int.from_bytes(os.urandom(5)), 7)


def is_id(text: str) -> bool:
    """Tell whether a text has the form of an id that `new_id` returns, and so is safe in a path."""
    return len(text) == _LENGTH and set(text) <= _CHARACTERS


def new_session_id() -> SessionId:
    """Return an id for a new conversation."""
    return SessionId(new_id())


def new_turn_id() -> TurnId:
    """Return an id for a new turn."""
    return TurnId(new_id())


def new_worker_id() -> WorkerId:
    """Return an id for this process as an owner of leases; never reused, unlike a pid."""
    return WorkerId(f"{_machine()}:{os.getpid()}:{_base32(int.from_bytes(os.urandom(5)), 7)}")


def is_gone(worker: WorkerId) -> bool:
    """Tell whether a worker is surely dead: of this machine, and without a process of its number."""
    machine, _, rest = worker.rpartition(":")[0].rpartition(":")
    if machine != _machine() or not rest.isdecimal():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _machine() -> str:
    """Return a name that two processes share only if they can see each other: host, and space of process numbers."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 (pathlib is not loaded for an id)
    except OSError:
        space = 0
    return f"{os.uname().nodename}/{space}"


def _base32(number: int, length: int) -> str:
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(5 * length - 5, -1, -5)])
