"""End background processes with all their children, including those left by ended ones."""

import asyncio
import signal

from talaria.contracts.background_processes import COOKIE, BackgroundProcess
from talaria.core.os_processes import (
    is_running,
    is_same_process,
    kill_tree,
    list_process_tree,
    list_session_processes,
    machine_id,
    signal_all,
)

GRACE = 2.0
_POLL_INTERVAL = 0.05


async def end_tree(process: BackgroundProcess) -> None:
    """Ask a process and all its children to stop, and kill the rest after a moment."""
    if not is_same_process(process.pid, process.started, process.machine):
        return
    cookie = f"{COOKIE}={process.id}"
    signal_all(await asyncio.to_thread(list_process_tree, process.pid, cookie), signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE):
            # The system signals the end of one process, but not of a tree.
            while await asyncio.to_thread(list_process_tree, process.pid, cookie):  # noqa: ASYNC110 (see above)
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        await asyncio.to_thread(kill_tree, process.pid, cookie)
    except asyncio.CancelledError:
        kill_tree(process.pid, cookie)
        raise


class LeftBehind:
    """Processes left in the sessions of ended ones: first asked to stop, then killed."""

    def __init__(self) -> None:
        self._leaders: dict[int, signal.Signals] = {}

    def __bool__(self) -> bool:
        return bool(self._leaders)

    def add(self, process: BackgroundProcess) -> None:
        """Handle the leftovers of this process."""
        if process.pid > 1 and process.machine == machine_id():
            self._leaders[process.pid] = signal.SIGTERM

    async def end(self) -> None:
        """Take the next step for each."""
        if not self._leaders:
            return
        # A reused number belongs to another process: none is assigned while its session still exists.
        leaders = {leader: number for leader, number in self._leaders.items() if not is_running(leader)}
        self._leaders = {}
        asked = {leader for leader, number in leaders.items() if number is signal.SIGTERM}
        for number, some in ((signal.SIGTERM, asked), (signal.SIGKILL, leaders.keys() - asked)):
            rest = await asyncio.to_thread(list_session_processes, some) if some else set()
            signal_all(rest, number)
            if rest and number is signal.SIGTERM:
                self._leaders.update(dict.fromkeys(some, signal.SIGKILL))
