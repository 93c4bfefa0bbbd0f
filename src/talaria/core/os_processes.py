"""Processes of this machine: identify them, list their descendants, end them."""

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import NamedTuple

_GONE = (b"Z", b"X")
_STATE, _PARENT, _SESSION, _STARTED = 0, 1, 3, 19
_MAX_TRIES = 40


class _Relation(NamedTuple):
    parent: int
    session: int


@cache
def machine_id() -> str:
    """Return an id of this machine since its boot, including its process namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 (pathlib is not loaded for this)
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 (the same)
    except OSError:
        return os.uname().nodename


def is_running(pid: int) -> bool:
    """Return whether a process with this number is alive."""
    fields = _read_stat(pid)
    if fields:
        return fields[_STATE] not in _GONE
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def read_start_time(pid: int) -> str:
    """Return the start time of a process in ticks since boot; ``None`` if the system doesn't report it.

    Together with its number it identifies a process, since numbers are reused.
    """
    fields = _read_stat(pid)
    return fields[_STARTED].decode() if len(fields) > _STARTED else ""


def is_same_process(pid: int, started: str, machine: str) -> bool:
    """Return whether the given process is alive on this machine."""
    return pid > 1 and machine == machine_id() and is_running(pid) and read_start_time(pid) == started


def list_session_processes(leaders: Collection[int]) -> set[int]:
    """Return the live processes in the sessions these lead or led, reading the process list once."""
    found = _list_processes()
    if found is None:
        return {-leader for leader in leaders if _has_group(leader)}
    return {pid for pid, relation in found.items() if relation.session in leaders}


def list_process_tree(leader: int, cookie: str = "") -> set[int]:
    """Return the live processes of a tree, including those that moved to their own sessions.

    A daemon has no parent to be found by; ``cookie`` is an entry ``NAME=value`` in its environment.
    """
    found = _list_processes()
    if found is None:
        return {-leader} if _has_group(leader) else set()
    marked = {pid for pid in found if cookie and has_environment_entry(pid, cookie)}
    members = {pid for pid, relation in found.items() if pid == leader or relation.session == leader} | marked
    while True:
        more = {
            pid for pid, relation in found.items() if relation.parent in members or relation.session in members
        } - members
        if not more:
            return members - {os.getpid()}
        members |= more


def kill_tree(leader: int, cookie: str = "") -> None:
    """Kill a process and all its descendants, including those started meanwhile."""
    for _ in range(_MAX_TRIES):
        alive = list_process_tree(leader, cookie)
        if not alive:
            return
        # The root first: it must not have time to notice that its children end.
        signal_all(sorted(alive, key=lambda pid: pid != leader), signal.SIGKILL)


def signal_all(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those processes that exist and are ours."""
    for process in processes:
        try:
            os.kill(process, number)
        except (ProcessLookupError, PermissionError):
            continue


def has_environment_entry(pid: int, cookie: str) -> bool:
    """Return whether a process was started with the environment entry ``NAME=value``."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 (read for every process there is)
            return cookie.encode() in file.read().split(b"\0")
    except OSError:
        return False


def _list_processes() -> Mapping[int, _Relation] | None:
    """Return parent and session of each live process; ``None`` if the system doesn't list them."""
    if not os.path.exists("/proc/self/stat"):  # noqa: PTH110 (pathlib is not loaded for this)
        return None
    found = {}
    with os.scandir("/proc") as entries:
        for entry in entries:
            fields = _read_stat(int(entry.name)) if entry.name.isdigit() else []
            if fields and fields[_STATE] not in _GONE:
                found[int(entry.name)] = _Relation(int(fields[_PARENT]), int(fields[_SESSION]))
    return found


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` after the name, which may contain anything."""
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
