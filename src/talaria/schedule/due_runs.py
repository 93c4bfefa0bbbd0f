"""Start due runs, each once, catch up missed ones at most once, and deliver reports of runs."""

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, structs

from talaria.contracts.jobs import CRON, HOME, NOWHERE, ORIGIN, Job, JobRequester, JobRun
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound, Refused, UnreadableValue
from talaria.core.ids import SessionId
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.schedule.job_store import (
    PENDING_RUN,
    UNFINISHED,
    JobSpec,
    PendingRun,
    ReportTarget,
    ScheduledJob,
    find_job,
    note_change,
    read_job,
    write_plan,
)
from talaria.schedule.recurrence import Every, Once, Schedule, format_moment, last_until, next_after, write_schedule
from talaria.sessions.chat_directory import find_target, read_home
from talaria.sessions.preferences import Preferences, read_preferences, write_preferences

_BATCH_SIZE = 32
_TOLERANCE = timedelta(minutes=2)
_MAX_COUNTED = 1_000
_BUSY = "The previous run was still going."
log = logging.getLogger(__name__)
Networks = Callable[[], Collection[str]]


class CatchUpPolicy(Struct, frozen=True):
    """Policy for missed runs: how late one may still start, and the chat networks for reports."""

    grace: timedelta
    networks: Networks


def start_due_runs(tx: Transaction, policy: CatchUpPolicy) -> int:
    """Start a run for each due job, in batches; return the number of jobs."""
    jobs = tx.jobs.find(due=True)[:_BATCH_SIZE]
    for job in jobs:
        try:
            _start_due(tx, job, policy)
        except (msgspec.DecodeError, Refused) as error:  # from a newer Talaria, or from a machine that knows more zones
            log.warning("job %s (%s) has an invalid schedule and is paused: %s", job.id, job.name, error)
            tx.jobs.put(structs.replace(job, paused=True))
    return len(jobs)


def start_named_job(tx: Transaction, words: str, asker: JobRequester, now: datetime) -> PendingRun:
    """Start a run of a named job at once; its schedule, pause and count stay unchanged."""
    return start_job_now(tx, find_job(tx, words, asker), now)


def start_job_now(tx: Transaction, scheduled: ScheduledJob, now: datetime) -> PendingRun:
    """Start a run at once, in addition to the schedule."""
    job = scheduled.job
    if has_unfinished_run(tx, job):
        raise Refused(f"`{job.name}` is already running.")
    immediate = structs.replace(job, paused=False, next_at=now)
    tx.jobs.put(immediate)
    run = tx.jobs.begin_run(immediate, next_at=None)
    tx.jobs.put(job)
    if run is None:
        raise Refused(f"`{job.name}` has just been started.")
    return _store_run(tx, scheduled, run, "")


def has_unfinished_run(tx: Transaction, job: Job) -> bool:
    """Return whether a job has an unfinished run."""
    return bool(PENDING_RUN.keys(tx, f"{UNFINISHED}{job.id}:"))


def list_unfinished_runs(tx: Transaction) -> list[PendingRun]:
    """Return all unfinished runs, whichever worker has them."""
    runs = []
    for key in PENDING_RUN.keys(tx):
        try:
            run = PENDING_RUN.get(tx, key)
        except UnreadableValue as error:
            log.warning("%s", error)
        else:
            runs += [run] if run is not None else []
    return runs


def find_next_due(tx: Transaction) -> datetime | None:
    """Return when the next job is due."""
    return min((job.next_at for job in tx.jobs.find() if job.next_at and not job.paused), default=None)


def find_misdated_jobs(tx: Transaction, now: datetime) -> list[Job]:
    """Return recurring jobs that are due later than their schedule says, with the correct time.

    Their time was set by a clock that was ahead, perhaps by years.
    """
    return [right for job in tx.jobs.find() if (right := _correct_time(job, now)) is not None]


def correct_times(tx: Transaction, now: datetime) -> None:
    """Reset recurring jobs whose next time is too far ahead."""
    for job in find_misdated_jobs(tx, now):
        log.warning(
            "job %s (%s) was waiting for a time set by a wrong clock; now due %s", job.id, job.name, job.next_at
        )
        tx.jobs.put(job)


def _correct_time(job: Job, now: datetime) -> Job | None:
    if job.paused or job.next_at is None or job.next_at <= now + _TOLERANCE:
        return None
    try:
        schedule = read_job(job).schedule
        if isinstance(schedule, Every) and schedule.since > now + _TOLERANCE:
            schedule = Every(schedule.seconds, now)
        next_time = None if isinstance(schedule, Once) else next_after(schedule, now)
    except (msgspec.DecodeError, Refused):  # reported when it is due
        return None
    if next_time is None or job.next_at <= next_time + _TOLERANCE:
        return None
    return structs.replace(job, next_at=next_time, schedule=write_schedule(schedule))


def _start_due(tx: Transaction, due: Job, policy: CatchUpPolicy) -> None:
    """Run the latest due time, if it is not too late; all earlier ones were missed.

    The current time is the store's, as for finding due jobs.
    """
    provisional = next_after(read_job(due).schedule, due.next_at) if due.next_at else None
    started = tx.jobs.begin_run(due, next_at=provisional)
    if started is None:
        return
    # From here on the job is locked until all this is written: changes made just before count.
    scheduled = next(read_job(job) for job in tx.jobs.find() if job.id == due.id)
    job, plan = scheduled.job, scheduled.plan
    first, now = started.due_at, max(started.started_at, started.due_at)
    last = max(last_until(scheduled.schedule, now) or first, first)
    late = now - last
    next_time = next_after(scheduled.schedule, now)
    if has_unfinished_run(tx, job):
        _record_missed(tx, started, _BUSY)
    elif late > _TOLERANCE and (plan.catch_up == "never" or late > policy.grace):
        missed_text = _describe_missed(scheduled, first, last)
        _record_missed(tx, started, missed_text)
        key = f"job:{job.id}:missed:{first.timestamp():.6f}"
        send_report(
            tx,
            plan,
            JobReport(key=key, name=job.name, text=f"**{job.name}**: {missed_text}", at=now),
            policy.networks(),
        )
    else:
        remark = f"It was due {format_moment(last, plan.zone)}." if late > _TOLERANCE else ""
        run: JobRun | None = started
        if last > first:
            earlier = _describe_missed(scheduled, first, last - timedelta(seconds=1))
            run, remark = _skip_to(tx, job, started, last, earlier), f"{earlier} {remark}".strip()
        if run is not None:
            left = None if plan.left is None else max(0, plan.left - 1)
            plan, next_time = structs.replace(plan, left=left), next_time if left != 0 else None
            _store_run(tx, scheduled, run, remark)
    tx.jobs.put(structs.replace(job, next_at=next_time, payload=write_plan(plan)))


def _skip_to(tx: Transaction, job: Job, started: JobRun, last: datetime, why: str) -> JobRun | None:
    """Replace a run by a later one of the same job and return it; ``None`` if that exists."""
    _record_missed(tx, started, why)
    later = structs.replace(job, next_at=last)
    tx.jobs.put(later)
    return tx.jobs.begin_run(later, next_at=None)


def _store_run(tx: Transaction, scheduled: ScheduledJob, started: JobRun, remark: str) -> PendingRun:
    """Give a run its session, if it needs one, and store it for the workers."""
    job, plan = scheduled.job, scheduled.plan
    title = f"{job.name}, {format_moment(started.due_at, plan.zone)}"
    new = NewSession(source=CRON, title=title, owner=job.owner, audience=plan.audience)
    session_id = SessionId("") if plan.plain else tx.sessions.create(new).id
    if session_id and plan.session_id and (persona := read_preferences(tx, plan.session_id).persona):
        write_preferences(tx, session_id, Preferences(persona=persona))
    run = PendingRun(
        job_id=job.id,
        name=job.name,
        owner=job.owner,
        due_at=started.due_at,
        started_at=started.started_at,
        session_id=session_id,
        plan=plan,
        remark=remark,
    )
    PENDING_RUN.write(tx, run.key, run)
    note_change(tx)
    return run


def _record_missed(tx: Transaction, run: JobRun, why: str) -> None:
    tx.jobs.end_run(structs.replace(run, state="missed", output=why))


def _describe_missed(scheduled: ScheduledJob, first: datetime, last: datetime) -> str:
    """Return a sentence about the missed times of a schedule in a range."""
    zone = scheduled.plan.zone
    count = _count_times(scheduled.schedule, first, last)
    if count <= 1:
        return f"It missed its run at {format_moment(first, zone)}: no gateway was running."
    number = f"over {_MAX_COUNTED:,}" if count > _MAX_COUNTED else str(count)
    return f"It missed {number} runs since {format_moment(first, zone)}: no gateway was running."


def _count_times(schedule: Schedule, first: datetime, last: datetime) -> int:
    if isinstance(schedule, Every):
        return (last - first) // timedelta(seconds=schedule.seconds) + 1
    count, moment = 1, next_after(schedule, first)
    while moment is not None and moment <= last and count <= _MAX_COUNTED:
        count, moment = count + 1, next_after(schedule, moment)
    return count


class JobReport(Struct, frozen=True, kw_only=True):
    """A report of a job; ``key`` prevents duplicates."""

    key: str
    name: str
    text: str
    at: datetime
    sender: SessionId | None = None


def resolve_targets(tx: Transaction, plan: JobSpec, networks: Collection[str]) -> list[Address]:
    """Return the current targets of a job; missing ones are left out and logged."""
    found: dict[Address, None] = {}
    for target in plan.deliver:
        try:
            address = _resolve_target(tx, target, plan, networks)
        except (NotFound, Ambiguous) as error:
            log.warning("a job can't report to %s: %s", target.words, error)
            continue
        if address is not None:
            found[address] = None
    return list(found)


def send_report(tx: Transaction, plan: JobSpec, report: JobReport, networks: Collection[str]) -> int:
    """Send a report to the targets of a plan and return their number."""
    addresses = resolve_targets(tx, plan, networks)
    for address in addresses:
        chat = f"{address.platform}:{address.chat_id}:{address.thread_id}"
        cross_post = CrossPost(
            key=f"{report.key}:{chat}",
            address=address,
            content=Content(text=report.text),
            source=f"the job “{report.name}”",
            at=report.at,
            sender=report.sender,
        )
        send_cross_post(tx, cross_post)
    return len(addresses)


def _resolve_target(tx: Transaction, target: ReportTarget, plan: JobSpec, networks: Collection[str]) -> Address | None:
    if target.words == NOWHERE:
        return None
    if target.words == ORIGIN:
        return _find_origin(tx, plan) or _find_home(tx, networks)
    if target.words == HOME:
        return _find_home(tx, networks)
    return target.address or find_target(tx, target.words, networks)


def _find_origin(tx: Transaction, plan: JobSpec) -> Address | None:
    """Return the chat of the session that created the job: its current one, otherwise the original."""
    bindings = tx.bindings.of_session(plan.session_id) if plan.session_id else []
    return bindings[0].address if bindings else plan.address


def _find_home(tx: Transaction, networks: Collection[str]) -> Address | None:
    """Return the home chat of the first network that has one."""
    homes = (read_home(tx, name) for name in networks)
    return next((home.address for home in homes if home), None)
