"""Detect whether this process was started by an agent's tool, by marks that a child can't easily remove."""

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

_VARIABLE = "TALARIA_SESSION_ID"
# "talaria" as a number, 32 petabytes: the limit has no effect, and nothing else sets it. Only root can raise it again.
_MARK = int.from_bytes(b"talaria", "big")
_MAX_ANCESTORS = 64


def mark_children() -> None:
    """Mark this process and all its descendants, whatever they do with their environment or their parents.

    If the system refuses, the other two signs remain.
    """
    try:
        resource.setrlimit(resource.RLIMIT_RSS, (_MARK, _MARK))
    except (ValueError, OSError):
        return


def comes_from_tool(environment: Mapping[str, str]) -> bool:
    """Return whether this process descends from an agent's session.

    Three signs, each sufficient: its own environment, the inherited mark, and the environment with which one of its
    ancestors was started.
    """
    if environment.get(_VARIABLE):
        return True
    if resource.getrlimit(resource.RLIMIT_RSS)[1] == _MARK:
        return True
    prefix = f"{_VARIABLE}=".encode()
    return any(_starts_with(process, prefix) for process in _ancestors())


def _ancestors() -> Iterator[int]:
    process = os.getppid()
    for _ in range(_MAX_ANCESTORS):
        if process <= 1:
            return
        yield process
        try:
            status = Path(f"/proc/{process}/stat").read_bytes()
        except OSError:
            return
        process = int(status.rpartition(b")")[2].split()[1])


def _starts_with(process: int, prefix: bytes) -> bool:
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(one.startswith(prefix) and one != prefix for one in variables)
