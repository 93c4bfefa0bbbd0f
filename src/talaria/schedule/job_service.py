"""The job service of one store, for tools and commands."""

from collections.abc import Callable, Collection, Sequence

from msgspec import structs

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.jobs import Job, JobPreview, JobRequest, JobRequester, JobView, RunView
from talaria.contracts.store import Store, Transaction
from talaria.runtime.workers import is_gateway_alive
from talaria.schedule.due_runs import resolve_targets, start_named_job
from talaria.schedule.job_store import (
    JobRules,
    ScheduledJob,
    add_job,
    build_job_view,
    build_run_view,
    change_job,
    find_job,
    find_jobs,
    read_job,
    remove_job,
)
from talaria.schedule.parse_when import read_schedule, split_schedule
from talaria.schedule.recurrence import describe_schedule, format_moment, list_next

_PREVIEWED = 5
NO_GATEWAY = "No gateway is running, so jobs won't start. Start one with `talaria gateway start`."
NO_HOME_CHAT = "There is no home chat, so its reports go nowhere. Send `/sethome` in the chat you want to use."


def find_job_problems(tx: Transaction, scheduled: ScheduledJob, networks: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each problem that makes a job useless."""
    plan = scheduled.plan
    has_no_target = not plan.quiet and not resolve_targets(tx, plan, networks)
    return (*([] if is_gateway_alive(tx) else [NO_GATEWAY]), *([NO_HOME_CHAT] if has_no_target else []))


class StoredJobService:
    """Implementation of `JobService`."""

    def __init__(self, store: Store, rules: JobRules, clock: Clock | None = None) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock or SystemClock()

    async def add(self, request: JobRequest, asker: JobRequester) -> JobView:
        """Create a job; without a ``when``, its prompt must start with a time."""
        now = self._clock.now()
        if request.when is None and request.prompt:
            when, prompt = split_schedule(request.prompt, now=now, zone=request.zone or self._rules.zone)
            request = structs.replace(request, when=when, prompt=prompt)
        return await self._change(lambda tx: add_job(tx, request, asker, self._rules, now))

    def preview(self, text: str, zone: str = "") -> JobPreview:
        """Return the time at the beginning of a text with its next runs, and the rest of the text."""
        now, zone = self._clock.now(), zone or self._rules.zone
        when, prompt = split_schedule(text, now=now, zone=zone)
        schedule = read_schedule(when, now=now, zone=zone)
        times = list_next(schedule, now, _PREVIEWED)
        return JobPreview(
            when=when,
            prompt=prompt,
            schedule=describe_schedule(schedule),
            zone=zone,
            next=times,
            next_told=tuple(format_moment(at, zone) for at in times),
        )

    async def find(self, name: str, asker: JobRequester) -> Sequence[JobView]:
        """Return the named job, or all jobs for empty text."""
        found = await self._store.read(lambda tx: [find_job(tx, name, asker)] if name else find_jobs(tx, asker))
        return [build_job_view(one) for one in found]

    async def change(self, name: str, request: JobRequest, asker: JobRequester) -> JobView:
        """Change the given values."""
        now = self._clock.now()
        return await self._change(lambda tx: change_job(tx, name, request, asker, self._rules, now))

    async def remove(self, name: str, asker: JobRequester) -> JobView:
        """Remove a job with its history."""
        return await self._change(lambda tx: remove_job(tx, name, asker))

    async def run(self, name: str, asker: JobRequester) -> JobView:
        """Run it now, regardless of its schedule."""
        now = self._clock.now()

        def start(tx: Transaction) -> Job:
            start_named_job(tx, name, asker, now)
            return find_job(tx, name, asker).job

        return await self._change(start)

    async def history(self, name: str, asker: JobRequester, limit: int = 10) -> Sequence[RunView]:
        """Return its latest runs, newest first."""

        def read(tx: Transaction) -> list[RunView]:
            found = find_job(tx, name, asker)
            return [build_run_view(run, found.plan.zone) for run in tx.jobs.runs(found.job.id, limit)]

        return await self._store.read(read)

    async def _change(self, work: Callable[[Transaction], Job]) -> JobView:
        def apply(tx: Transaction) -> JobView:
            job = read_job(work(tx))
            return build_job_view(job, find_job_problems(tx, job, self._rules.networks))

        return await self._store.write(apply)
