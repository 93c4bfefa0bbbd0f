"""Wait for a time, or for the end of a process, whichever comes first."""

import asyncio
import os

from msgspec import structs

from talaria.contracts.clock import Clock
from talaria.core.system_processes import is_same, is_there, this_machine, when_started
from talaria.goals.goal import Parked, Watched
from talaria.goals.verdicts import Opinion

_LOOK_AT_CLOCK = 30.0
_LOOK_AGAIN = 0.5


def watch(pid: int) -> Watched | None:
    """Return a process as something to wait for, or ``None`` if there is none of this number."""
    if pid <= 1 or not is_there(pid):
        return None
    return Watched(pid, when_started(pid), this_machine())


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
    return is_same(watched.pid, watched.started, watched.machine)
