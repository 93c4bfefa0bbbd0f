"""The jobs of one store for tools and commands."""

from collections.abc import Callable, Sequence

from msgspec import structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.schedules import Asker, JobView, JobWish, RunView
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.jobs import Job
from talaria.schedule.due import run_now
from talaria.schedule.keeping import (
    SCHEDULES,
    Rules,
    add_job,
    change_job,
    find_job,
    find_jobs,
    remove_job,
    view,
    view_run,
)
from talaria.schedule.plan import read_job
from talaria.schedule.reading import split_schedule
from talaria.schedule.remarks import remarks


class ScheduleDesk:
    """Implements `JobDesk`."""

    def __init__(self, store: Store, rules: Rules, clock: Clock | None = None) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock or SystemClock()

    async def add(self, wish: JobWish, asker: Asker) -> JobView:
        """Make a job; without a time of its own its prompt begins with one."""
        now = self._clock.now()
        if wish.when is None and wish.prompt:
            when, prompt = split_schedule(wish.prompt, now=now, zone=wish.zone or self._rules.zone)
            wish = structs.replace(wish, when=when, prompt=prompt)
        return await self._changed(lambda tx: add_job(tx, wish, asker, self._rules, now))

    async def find(self, words: str, asker: Asker) -> Sequence[JobView]:
        """Return the one that is named, or all of them without words."""
        found = await self._store.read(lambda tx: [find_job(tx, words, asker)] if words else find_jobs(tx, asker))
        return [view(one) for one in found]

    async def change(self, words: str, wish: JobWish, asker: Asker) -> JobView:
        """Change what is given."""
        now = self._clock.now()
        return await self._changed(lambda tx: change_job(tx, words, wish, asker, self._rules, now))

    async def remove(self, words: str, asker: Asker) -> JobView:
        """Remove a job with its history."""
        return await self._changed(lambda tx: remove_job(tx, words, asker))

    async def run(self, words: str, asker: Asker) -> JobView:
        """Let it run now, whatever its schedule says."""
        now = self._clock.now()

        def begun(tx: Transaction) -> Job:
            run_now(tx, words, asker, now)
            return find_job(tx, words, asker).job

        return await self._changed(begun)

    async def history(self, words: str, asker: Asker, limit: int = 10) -> Sequence[RunView]:
        """Return its latest runs, newest first."""

        def read(tx: Transaction) -> list[RunView]:
            found = find_job(tx, words, asker)
            return [view_run(run, found.plan.zone) for run in tx.jobs.runs(found.job.id, limit)]

        return await self._store.read(read)

    async def _changed(self, work: Callable[[Transaction], Job]) -> JobView:
        def changed(tx: Transaction) -> JobView:
            job = read_job(work(tx))
            return view(job, remarks(tx, job, self._rules.networks))

        shown = await self._store.write(changed)
        await self._store.hint(SCHEDULES)
        return shown
