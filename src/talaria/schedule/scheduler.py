"""The scheduler: sleeps until a job is due, and resumes runs whose worker is gone."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from talaria.contracts.store import Subscription
from talaria.core.errors import StoreError, TalariaError
from talaria.schedule.due_runs import (
    CatchUpPolicy,
    correct_times,
    find_misdated_jobs,
    find_next_due,
    list_unfinished_runs,
    start_due_runs,
)
from talaria.schedule.job_store import SCHEDULES, PendingRun, read_change_counter
from talaria.schedule.run_executor import RunDependencies, execute_run

_MAX_PARALLEL = 8
_MIN_SLEEP = 0.02
_SHORT_WAIT, _RETRY_WAIT, _LONG_WAIT = timedelta(milliseconds=200), timedelta(seconds=5), timedelta(minutes=5)

log = logging.getLogger(__name__)


class Scheduler:
    """Starts due jobs; with several schedulers on one store each run starts once. ``grace`` limits how late."""

    def __init__(self, dependencies: RunDependencies, grace: Callable[[], timedelta]) -> None:
        self._dependencies = dependencies
        self._grace = grace
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_MAX_PARALLEL)
        self._closing = False
        self._seen_version = -1
        self._polled_at = self._wake_at = dependencies.clock.now()

    async def serve(self) -> None:
        """Start jobs as they become due, until cancelled; running jobs continue until `close`."""
        async with self._dependencies.opener.store.subscribe(SCHEDULES) as subscription:
            await subscription.wait()
            while True:
                try:
                    await self._poll_if_needed()
                except StoreError as error:
                    log.warning("jobs not run, will retry: %s", error)
                    self._wake_at = self._dependencies.clock.now() + _RETRY_WAIT
                except Exception:  # a job that triggers a bug must not end the gateway again and again
                    log.exception("jobs not run, will retry")
                    self._wake_at = self._dependencies.clock.now() + _LONG_WAIT
                await _wait_with_timeout(
                    subscription, max(_MIN_SLEEP, (self._wake_at - self._dependencies.clock.now()).total_seconds())
                )

    async def _poll_if_needed(self) -> None:
        """Look when something was changed, it is time, or the clock was set back; not at each periodic check."""
        seen = await self._dependencies.opener.store.read(read_change_counter)
        if seen == self._seen_version and self._polled_at <= self._dependencies.clock.now() < self._wake_at:
            return
        self._seen_version = seen
        await self.look()
        self._wake_at = await self._find_next_wake()

    async def look(self) -> int:
        """Start due jobs, claim unowned runs, and return the number in progress here."""
        store, policy = self._dependencies.opener.store, CatchUpPolicy(self._grace(), self._dependencies.networks)
        now = self._polled_at = self._dependencies.clock.now()
        if await store.read(lambda tx: bool(find_misdated_jobs(tx, now))):
            await store.write(lambda tx: correct_times(tx, now))
        while await store.read(lambda tx: bool(tx.jobs.find(due=True))):
            await store.write(lambda tx: start_due_runs(tx, policy))
        self._start_runs(await store.read(list_unfinished_runs))
        return len(self._in_flight)

    async def run_pending_turns(self, only: str = "") -> int:
        """Start due jobs, wait until our runs are over, and return their number.

        With ``only`` nothing is started except pending runs of that job.
        """
        if only:
            runs = await self._dependencies.opener.store.read(list_unfinished_runs)
            self._start_runs([run for run in runs if run.job_id == only])
        else:
            await self.look()
        started = dict(self._in_flight)
        if started:
            await asyncio.wait(started.values())
        return len(started)

    async def close(self, patience: float) -> None:
        """Give runs so many seconds to end, then cancel them: they resume at the next start."""
        self._closing = True
        if self._in_flight:
            await asyncio.wait(self._in_flight.values(), timeout=patience)
        for task in (left := list(self._in_flight.values())):
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _start_runs(self, runs: Sequence[PendingRun]) -> None:
        for run in runs:
            if run.key not in self._in_flight and not self._closing:
                self._in_flight[run.key] = self._dependencies.jobs.create_task(self._execute(run))

    async def _execute(self, run: PendingRun) -> None:
        try:
            async with self._slots:
                await execute_run(run, self._dependencies)
        except TalariaError as error:
            log.warning("job %s not run, will retry: %s", run.name, error)
        finally:
            self._in_flight.pop(run.key, None)

    async def _find_next_wake(self) -> datetime:
        """Return the time of the next check, unless something changes."""
        now = self._dependencies.clock.now()
        due, runs = await self._dependencies.opener.store.read(lambda tx: (find_next_due(tx), list_unfinished_runs(tx)))
        has_remote_runs = any(run.key not in self._in_flight for run in runs)
        latest = now + (self._dependencies.lease if has_remote_runs else _LONG_WAIT)
        # What is due by our clock but not by the store's will be in a moment.
        return min(max(due, now + _SHORT_WAIT), latest) if due is not None else latest


async def _wait_with_timeout(subscription: Subscription, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await subscription.wait()
    except TimeoutError:
        pass
