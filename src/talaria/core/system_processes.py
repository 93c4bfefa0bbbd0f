"""Processes of this machine as the system knows them: which is which, what belongs to one, and how they are ended."""

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import NamedTuple

_GONE = (b"Z", b"X")
_STATE, _PARENT, _SESSION, _STARTED = 0, 1, 3, 19
_MOST_TRIES = 40


class _Relation(NamedTuple):
    parent: int
    session: int


@cache
def this_machine() -> str:
    """Return what tells this machine since its start, and its space of process numbers, from all others."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 (pathlib is not loaded for this)
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 (the same)
    except OSError:
        return os.uname().nodename


def is_there(pid: int) -> bool:
    """Tell whether a process of this number is alive."""
    fields = _fields(pid)
    if fields:
        return fields[_STATE] not in _GONE
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def when_started(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; nothing where the system does not tell.

    With its number that names a process: numbers are given out again.
    """
    fields = _fields(pid)
    return fields[_STARTED].decode() if len(fields) > _STARTED else ""


def is_same(pid: int, started: str, machine: str) -> bool:
    """Tell whether the process that is meant is alive, here."""
    return pid > 1 and machine == this_machine() and is_there(pid) and when_started(pid) == started


def in_sessions(leaders: Collection[int]) -> set[int]:
    """Return what is alive in the sessions that these lead, or led; the system is asked once for all of them."""
    found = _everything()
    if found is None:
        return {-leader for leader in leaders if _has_group(leader)}
    return {pid for pid, relation in found.items() if relation.session in leaders}


def tree_of(leader: int, cookie: str = "") -> set[int]:
    """Return what is alive of a process and all it started, what moved to sessions of its own included.

    A daemon has no parent to be found by: ``cookie`` is an entry ``NAME=value`` that its environment has.
    """
    found = _everything()
    if found is None:
        return {-leader} if _has_group(leader) else set()
    marked = {pid for pid in found if cookie and carries(pid, cookie)}
    members = {pid for pid, relation in found.items() if pid == leader or relation.session == leader} | marked
    while True:
        more = {
            pid for pid, relation in found.items() if relation.parent in members or relation.session in members
        } - members
        if not more:
            return members - {os.getpid()}
        members |= more


def kill_tree(leader: int, cookie: str = "") -> None:
    """Kill a process and all it started at once, also where that grows meanwhile."""
    for _ in range(_MOST_TRIES):
        alive = tree_of(leader, cookie)
        if not alive:
            return
        # The one at the top first: it must not have the time to notice what becomes of the others.
        signal_all(sorted(alive, key=lambda pid: pid != leader), signal.SIGKILL)


def signal_all(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to all of these that are there and ours."""
    for process in processes:
        try:
            os.kill(process, number)
        except (ProcessLookupError, PermissionError):
            continue


def carries(pid: int, cookie: str) -> bool:
    """Tell whether the environment with which a process began has an entry ``NAME=value``."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 (read for every process there is)
            return cookie.encode() in file.read().split(b"\0")
    except OSError:
        return False


def _everything() -> Mapping[int, _Relation] | None:
    """Return parent and session of whatever is alive; ``None`` where the system does not list it."""
    if not os.path.exists("/proc/self/stat"):  # noqa: PTH110 (pathlib is not loaded for this)
        return None
    found = {}
    with os.scandir("/proc") as entries:
        for entry in entries:
            fields = _fields(int(entry.name)) if entry.name.isdigit() else []
            if fields and fields[_STATE] not in _GONE:
                found[int(entry.name)] = _Relation(int(fields[_PARENT]), int(fields[_SESSION]))
    return found


def _fields(pid: int) -> list[bytes]:
    """Return what the system tells of a process behind its name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 (read for every process there is)
            return file.read(1024).rpartition(b")")[2].split()
    except OSError:
        return []


def _has_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
