"""What starts jobs: it sleeps until one is due, and goes on with runs whose worker is gone."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from talaria.core.errors import StoreError, TalariaError
from talaria.schedule.due import Manner, begin_due, correct_times, next_due, too_far_ahead, unfinished
from talaria.schedule.keeping import SCHEDULES, changes
from talaria.schedule.plan import Run
from talaria.schedule.running import Means, work_on

_AT_ONCE = 8
_SHORTEST = 0.02
_A_MOMENT, _A_BIT, _A_WHILE = timedelta(milliseconds=200), timedelta(seconds=5), timedelta(minutes=5)

log = logging.getLogger(__name__)


class Ticker:
    """Starts what is due; of several on one store each run has one. ``grace`` is how late a run may be made up for."""

    def __init__(self, means: Means, grace: Callable[[], timedelta]) -> None:
        self._means = means
        self._grace = grace
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._closing = False
        self._seen = -1
        self._looked_at = self._wake_at = means.clock.now()

    async def serve(self) -> None:
        """Start jobs as they become due, until cancelled; what runs then goes on until `close`."""
        async with self._means.opener.store.heeding(SCHEDULES) as rung:
            while True:
                rung.clear()
                try:
                    await self._look_if_needed()
                except StoreError as error:
                    log.warning("jobs wait: %s", error)
                    self._wake_at = self._means.clock.now() + _A_BIT
                except Exception:  # a job that brings out a bug must not end the gateway, again and again
                    log.exception("jobs wait")
                    self._wake_at = self._means.clock.now() + _A_WHILE
                await _rung(rung, max(_SHORTEST, (self._wake_at - self._means.clock.now()).total_seconds()))

    async def _look_if_needed(self) -> None:
        """Look when something was changed, it is time, or the clock was set back; hints come with any other write."""
        seen = await self._means.opener.store.read(changes)
        if seen == self._seen and self._looked_at <= self._means.clock.now() < self._wake_at:
            return
        self._seen = seen
        await self.look()
        self._wake_at = await self._next_look()

    async def look(self) -> int:
        """Begin what is due, take up what nobody is at work on, and return how much of that is under way here."""
        store, manner = self._means.opener.store, Manner(self._grace(), self._means.networks)
        now = self._looked_at = self._means.clock.now()
        if await store.read(lambda tx: bool(too_far_ahead(tx, now))):
            await store.write(lambda tx: correct_times(tx, now))
        while await store.read(lambda tx: bool(tx.jobs.find(due=True))):
            await store.write(lambda tx: begin_due(tx, manner))
        self._take_up(await store.read(unfinished))
        return len(self._under_way)

    async def work_off(self, only: str = "") -> int:
        """Begin what is due, wait until all that is ours is over, and return how many runs that were.

        With ``only`` nothing is begun but what waits already for that job.
        """
        if only:
            runs = await self._means.opener.store.read(unfinished)
            self._take_up([run for run in runs if run.job_id == only])
        else:
            await self.look()
        begun = dict(self._under_way)
        if begun:
            await asyncio.wait(begun.values())
        return len(begun)

    async def close(self, patience: float) -> None:
        """Let runs end for so many seconds, then cut them off: they go on at the next start."""
        self._closing = True
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=patience)
        for task in (left := list(self._under_way.values())):
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _take_up(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if run.key not in self._under_way and not self._closing:
                self._under_way[run.key] = self._means.jobs.create_task(self._work_on(run))

    async def _work_on(self, run: Run) -> None:
        try:
            async with self._places:
                await work_on(run, self._means)
        except TalariaError as error:
            log.warning("job %s waits: %s", run.name, error)
        finally:
            self._under_way.pop(run.key, None)

    async def _next_look(self) -> datetime:
        """Return until when there is nothing to do, unless something is changed."""
        now = self._means.clock.now()
        due, runs = await self._means.opener.store.read(lambda tx: (next_due(tx), unfinished(tx)))
        elsewhere = any(run.key not in self._under_way for run in runs)
        latest = now + (self._means.lease if elsewhere else _A_WHILE)
        # What is due by our clock and not by the store's is so in a moment.
        return min(max(due, now + _A_MOMENT), latest) if due is not None else latest


async def _rung(rung: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await rung.wait()
    except TimeoutError:
        pass
