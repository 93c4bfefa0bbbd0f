"""Poll all background processes each second: watched lines, growing outputs, leftover processes."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from talaria.contracts.background_processes import BackgroundProcess, change_process
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.core.os_processes import is_same_process
from talaria.tools.process.pattern_watch import MOST_NOTICES, Lookout
from talaria.tools.process.reports import Reporter, match_name, match_notice
from talaria.tools.process.run_folder import ROTATE_AT, ProcessFiles
from talaria.tools.process.termination import LeftBehind


class Watched:
    """A watched process; ``silent`` means that the system doesn't signal its end, so it must be polled."""

    def __init__(self, process: BackgroundProcess) -> None:
        self.process = process
        self.files = ProcessFiles(Path(process.place))
        self.lookout = Lookout(self.files, process.patterns, process.scanned, process.matches, process.matched_at)
        self.ended = asyncio.Event()
        self.over = False
        self.ending = False
        self.silent = True
        self._handle: int | None = None

    @property
    def runs(self) -> bool:
        """Return whether it is alive."""
        return is_same_process(self.process.pid, self.process.started, self.process.machine)

    def listen(self, ring: Callable[[], None]) -> None:
        """Call ``ring`` when it ends, immediately if it has."""
        with suppress(AttributeError, OSError):  # the system has no pidfd, or the process is gone
            self._handle = os.pidfd_open(self.process.pid)
            self.silent = False
            asyncio.get_running_loop().add_reader(self._handle, ring)
        if not self.runs:
            ring()

    def close(self) -> None:
        """Close the file descriptor, and reap the process if it was our child."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
        if self.process.pid:
            with suppress(ChildProcessError):
                os.waitpid(self.process.pid, os.WNOHANG)


_PAUSE = 1.0


_BETWEEN_ROTATIONS = 10


log = logging.getLogger(__name__)


class Rounds:
    """The polling task of one worker; ``ring`` is called for a process that ended without a signal.

    It pauses until ``needed`` says that there is something to poll.
    """

    def __init__(
        self,
        store: Store,
        watched: Mapping[str, Watched],
        ring: Callable[[Watched], None],
        reporter: Reporter,
    ) -> None:
        self.left_behind = LeftBehind()
        self.needed = asyncio.Event()
        self._store = store
        self._watched = watched
        self._ring = ring
        self._reporter = reporter

    async def follow(self) -> None:
        """Poll until cancelled."""
        count = 0
        while True:
            await self.needed.wait()
            await asyncio.sleep(_PAUSE)
            count += 1
            try:
                await self._go_round(rotate=count % _BETWEEN_ROTATIONS == 0)
            except (StoreError, OSError) as error:
                log.warning("can't read the output of background processes, will retry: %s", error)
            if not self._watched and not self.left_behind:
                self.needed.clear()

    async def _go_round(self, *, rotate: bool) -> None:
        now = datetime.now(UTC)
        for watched in list(self._watched.values()):
            if watched.silent and not watched.runs:
                self._ring(watched)
            lookout = watched.lookout
            if lookout.has_news:
                await asyncio.to_thread(lookout.look)
            if lookout.lines and lookout.is_due(now):
                await self._tell(watched, now)
            if rotate and watched.files.size >= ROTATE_AT:
                await self._rotate(watched)
        await self.left_behind.end()

    async def _rotate(self, watched: Watched) -> None:
        """Rotate an output, after searching it for watched lines."""
        await asyncio.to_thread(watched.lookout.look)
        await asyncio.to_thread(watched.files.rotate)
        watched.lookout.position = 0
        await self._store.write(lambda tx: change_process(tx, watched.process, scanned=0))

    async def _tell(self, watched: Watched, now: datetime) -> None:
        """Report matching lines and store the position in the same transaction, so that each is found once."""
        lookout = watched.lookout
        number, position = lookout.matches + 1, lookout.position
        text = found_lines(watched, last=number >= MOST_NOTICES)

        def work(tx: Transaction) -> None:
            changed = change_process(tx, watched.process, scanned=position, matches=number, matched_at=now)
            if changed is not None:
                self._reporter.report(tx, changed, match_name(changed, number), text)

        await self._store.write(work)
        lookout.tell(now)


def found_lines(watched: Watched, *, last: bool) -> str:
    """Return the report of matching lines; ``last`` means that there will be no more."""
    return match_notice(watched.process, watched.lookout.lines, watched.lookout.left_out, last=last)
