"""Wait for a time, or for the end of a process, whichever comes first."""

import asyncio
import os
from pathlib import Path

from msgspec import structs

from talaria.contracts.clock import Clock
from talaria.goals.goal import Parked, Watched
from talaria.goals.verdicts import Opinion

_LOOK_AT_CLOCK = 30.0
_LOOK_AGAIN = 0.5
_GONE = ("Z", "X")


def watch(pid: int) -> Watched | None:
    """Return a process as something to wait for, or ``None`` if there is none of this number."""
    if pid <= 1 or not _is_there(pid):
        return None
    return Watched(pid, _started(pid), _machine())


def with_process(opinion: Opinion) -> tuple[Opinion, Watched | None]:
    """Return an opinion with the process that it waits for; one that is gone already need not be waited for."""
    if opinion.verdict != "wait" or not opinion.wait_pid:
        return opinion, None
    watched = watch(opinion.wait_pid)
    return opinion if watched else structs.replace(opinion, wait_seconds=0), watched


async def until_over(parked: Parked, clock: Clock) -> None:
    """Return when the time has come or the process has ended; one of another machine cannot be waited for."""
    left = (parked.until - clock.now()).total_seconds()
    while left > 0:
        # In slices: the clock may be set, or the machine may sleep.
        try:
            async with asyncio.timeout(min(left, _LOOK_AT_CLOCK)):
                await _ended(parked.process)
                return
        except TimeoutError:
            left = (parked.until - clock.now()).total_seconds()


async def _ended(watched: Watched | None) -> None:
    """Return when a process has ended; never where there is none to wait for."""
    if watched is None:
        await asyncio.Event().wait()
        return
    try:
        handle = os.pidfd_open(watched.pid)
    except (AttributeError, OSError):
        await _polled(watched)
        return
    try:
        if _is_same(watched):
            await _readable(handle)
    finally:
        os.close(handle)


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)


async def _polled(watched: Watched) -> None:
    while _is_same(watched):  # noqa: ASYNC110 (where the system has no bell for the end of a process)
        await asyncio.sleep(_LOOK_AGAIN)


def _is_same(watched: Watched) -> bool:
    return watched.machine == _machine() and _is_there(watched.pid) and _started(watched.pid) == watched.started


def _is_there(pid: int) -> bool:
    fields = _fields(pid)
    if fields:
        return fields[0] not in _GONE
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _started(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; nothing where the system does not tell."""
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def _fields(pid: int) -> list[str]:
    """Return what the system tells of a process behind its name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _machine() -> str:
    """Return what tells this machine since its start, and its space of process numbers, from all others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return os.uname().nodename
