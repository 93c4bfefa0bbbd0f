"""End background processes with all that they have started, and what those that are over have left behind."""

import asyncio
import signal

from talaria.contracts.processes import COOKIE, BackgroundProcess
from talaria.core.system_processes import in_sessions, is_same, is_there, kill_tree, signal_all, this_machine, tree_of

GRACE = 2.0
_LOOK_AGAIN = 0.05


async def end_tree(process: BackgroundProcess) -> None:
    """Ask a process and all it started to stop, and kill what is left of that after a moment."""
    if not is_same(process.pid, process.started, process.machine):
        return
    cookie = f"{COOKIE}={process.id}"
    signal_all(await asyncio.to_thread(tree_of, process.pid, cookie), signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE):
            # The system tells of the end of one process; of that of a tree it does not.
            while await asyncio.to_thread(tree_of, process.pid, cookie):  # noqa: ASYNC110 (see above)
                await asyncio.sleep(_LOOK_AGAIN)
    except TimeoutError:
        await asyncio.to_thread(kill_tree, process.pid, cookie)
    except asyncio.CancelledError:
        kill_tree(process.pid, cookie)
        raise


class LeftBehind:
    """What processes that are over have left in their sessions: first asked to stop, then killed."""

    def __init__(self) -> None:
        self._leaders: dict[int, signal.Signals] = {}

    def __bool__(self) -> bool:
        return bool(self._leaders)

    def add(self, process: BackgroundProcess) -> None:
        """See to what this one may have left."""
        if process.pid > 1 and process.machine == this_machine():
            self._leaders[process.pid] = signal.SIGTERM

    async def end(self) -> None:
        """Go one step further with each."""
        if not self._leaders:
            return
        # A number that is in use again is that of another process: nobody gets one whose session is still there.
        leaders = {leader: number for leader, number in self._leaders.items() if not is_there(leader)}
        self._leaders = {}
        asked = {leader for leader, number in leaders.items() if number is signal.SIGTERM}
        for number, some in ((signal.SIGTERM, asked), (signal.SIGKILL, leaders.keys() - asked)):
            rest = await asyncio.to_thread(in_sessions, some) if some else set()
            signal_all(rest, number)
            if rest and number is signal.SIGTERM:
                self._leaders.update(dict.fromkeys(some, signal.SIGKILL))
