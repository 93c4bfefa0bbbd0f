"""Go round all background processes each second: lines that are watched for, outputs that grow, what was left."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from talaria.contracts.processes import change_process
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.tools.process.ending import LeftBehind
from talaria.tools.process.files import ROTATE_AT
from talaria.tools.process.matching import MOST_NOTICES
from talaria.tools.process.reporting import Reporter, match_name
from talaria.tools.process.watching import Watched
from talaria.tools.process.wording import match_notice

_PAUSE = 1.0
_BETWEEN_ROTATIONS = 10

log = logging.getLogger(__name__)


class Rounds:
    """The rounds of one worker; ``ring`` is called for a process that has ended unheard.

    They rest until ``needed`` says that there is something to go round for.
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
        """Go round until cancelled."""
        count = 0
        while True:
            await self.needed.wait()
            await asyncio.sleep(_PAUSE)
            count += 1
            try:
                await self._go_round(rotate=count % _BETWEEN_ROTATIONS == 0)
            except (StoreError, OSError) as error:
                log.warning("outputs of background processes are looked at later: %s", error)
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
        """Begin an output anew; what is watched for in it is looked for first."""
        await asyncio.to_thread(watched.lookout.look)
        await asyncio.to_thread(watched.files.rotate)
        watched.lookout.position = 0
        await self._store.write(lambda tx: change_process(tx, watched.process, scanned=0))

    async def _tell(self, watched: Watched, now: datetime) -> None:
        """Report lines that were found; how far was looked is kept with that, so that each is found once."""
        lookout = watched.lookout
        number, position = lookout.matches + 1, lookout.position
        text = found_lines(watched, last=number >= MOST_NOTICES)

        def work(tx: Transaction) -> None:
            changed = change_process(tx, watched.process, scanned=position, matches=number, matched_at=now)
            if changed is not None:
                self._reporter.report(tx, changed, match_name(changed, number), text)

        await self._store.write(work)
        lookout.tell(now)
        await self._store.hint(self._reporter.topic)


def found_lines(watched: Watched, *, last: bool) -> str:
    """Return what is reported of the lines that were found; ``last`` says that no more will be."""
    return match_notice(watched.process, watched.lookout.lines, watched.lookout.left_out, last=last)
