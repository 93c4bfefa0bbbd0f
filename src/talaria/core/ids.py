"""Ids: short, sortable by creation time, safe in file names and URLs."""

import os
import time
from typing import NewType

from talaria.core.os_processes import is_running, read_start_time

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letters that look alike
_CHARACTERS = frozenset(_ALPHABET)
_LENGTH = 16


def new_id() -> str:
    """Return 16 characters: nine for the time in milliseconds, seven random."""
    return _encode_base32(time.time_ns() // 1_000_000, 9) + _encode_base32(int.from_bytes(os.urandom(5)), 7)


def derive_id(seconds: float, seed: bytes) -> str:
    """Return an id for something made at this time, in seconds since 1970; the same seed gives the same id."""
    return _encode_base32(int(seconds * 1000), 9) + _encode_base32(int.from_bytes(seed[:5]), 7)


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id from `new_id`, and is therefore safe in a path."""
    return len(text) == _LENGTH and set(text) <= _CHARACTERS


def new_session_id() -> SessionId:
    """Return an id for a new session."""
    return SessionId(new_id())


def new_turn_id() -> TurnId:
    """Return an id for a new turn."""
    return TurnId(new_id())


def new_worker_id() -> WorkerId:
    """Return an id for this process as an owner of leases; never reused, unlike a pid."""
    pid = os.getpid()
    return WorkerId(
        f"{_identify_machine()}:{pid}:{read_start_time(pid)}-{_encode_base32(int.from_bytes(os.urandom(5)), 7)}"
    )


def is_gone(worker: WorkerId) -> bool:
    """Return whether a worker is certainly dead: it ran on this machine, and its process has ended or was replaced."""
    where, _, name = worker.rpartition(":")
    machine, _, pid = where.rpartition(":")
    if machine != _identify_machine() or not pid.isdecimal():
        return False
    started = name.rpartition("-")[0]
    return not is_running(int(pid)) or bool(started and read_start_time(int(pid)) not in ("", started))


def _identify_machine() -> str:
    """Return a name that two processes share only if they see each other: host name and process namespace."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 (pathlib is not loaded for an id)
    except OSError:
        space = 0
    return f"{os.uname().nodename}/{space}"


def _encode_base32(number: int, length: int) -> str:
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(5 * length - 5, -1, -5)])
