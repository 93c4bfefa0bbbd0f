"""Waits for a time or for the end of a process, whichever comes first."""

import asyncio
import os

from msgspec import structs

from talaria.contracts.clock import Clock
from talaria.core.os_processes import is_running, is_same_process, machine_id, read_start_time
from talaria.goals.goal import Waiting, WatchedProcess
from talaria.goals.verdicts import Opinion

_CLOCK_INTERVAL = 30.0
_POLL_INTERVAL = 0.5


def identify_process(pid: int) -> WatchedProcess | None:
    """Return the identity of a process to wait for, or ``None`` if it does not run."""
    if pid <= 1 or not is_running(pid):
        return None
    return WatchedProcess(pid, read_start_time(pid), machine_id())


def resolve_process(opinion: Opinion) -> tuple[Opinion, WatchedProcess | None]:
    """Return an opinion with the process that it waits for; if it has ended, there is no wait."""
    if opinion.verdict != "wait" or not opinion.wait_pid:
        return opinion, None
    watched = identify_process(opinion.wait_pid)
    return opinion if watched else structs.replace(opinion, wait_seconds=0), watched


async def wait_until_over(parked: Waiting, clock: Clock) -> None:
    """Wait until the time has come or the process has ended.

    A process of another machine is treated as ended.
    """
    left = (parked.until - clock.now()).total_seconds()
    while left > 0:
        # In slices, because the clock may be changed or the machine suspended.
        try:
            async with asyncio.timeout(min(left, _CLOCK_INTERVAL)):
                await _wait_for_exit(parked.process)
                return
        except TimeoutError:
            left = (parked.until - clock.now()).total_seconds()


async def _wait_for_exit(watched: WatchedProcess | None) -> None:
    """Wait until a process has ended; without a process, forever."""
    if watched is None:
        await asyncio.Event().wait()
        return
    try:
        handle = os.pidfd_open(watched.pid)
    except (AttributeError, OSError):
        await _poll_exit(watched)
        return
    try:
        if _is_same(watched):
            await _wait_readable(handle)
    finally:
        os.close(handle)


async def _wait_readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)


async def _poll_exit(watched: WatchedProcess) -> None:
    while _is_same(watched):  # noqa: ASYNC110 (only on systems without pidfd)
        await asyncio.sleep(_POLL_INTERVAL)


def _is_same(watched: WatchedProcess) -> bool:
    return is_same_process(watched.pid, watched.started, watched.machine)
