"""What is due becomes a run, once; what was missed is made up for once at most, and told."""

import logging
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, structs

from talaria.contracts.schedules import CRON, Asker
from talaria.contracts.store import Transaction
from talaria.contracts.stores.jobs import Job, JobRun
from talaria.contracts.stores.sessions import NewSession
from talaria.core.errors import Refused
from talaria.core.ids import SessionId
from talaria.schedule.delivering import Networks, Report, send
from talaria.schedule.keeping import find_job, note_change
from talaria.schedule.plan import UNFINISHED, Run, Scheduled, read_job, read_run, write_plan, write_run
from talaria.schedule.times import Every, Once, Schedule, last_until, next_after, write_schedule
from talaria.schedule.wording import told

_AT_ONCE = 32
_ON_TIME = timedelta(minutes=2)
_MOST_COUNTED = 1_000
_BUSY = "The run before was still at work."

log = logging.getLogger(__name__)


class Manner(Struct, frozen=True):
    """How late a run may be made up for, and the chat networks through which people are told."""

    grace: timedelta
    networks: Networks


def begin_due(tx: Transaction, manner: Manner) -> int:
    """Begin a run for each job that is due, some at a time; return how many jobs that were."""
    jobs = tx.jobs.find(due=True)[:_AT_ONCE]
    for job in jobs:
        try:
            _begin(tx, job, manner)
        except (msgspec.DecodeError, Refused) as error:  # of a newer Talaria, or of a machine that knows more zones
            log.warning("job %s (%s) makes no sense here, and is paused: %s", job.id, job.name, error)
            tx.jobs.put(structs.replace(job, paused=True))
    return len(jobs)


def run_now(tx: Transaction, words: str, asker: Asker, now: datetime) -> Run:
    """Begin a run of a job that somebody wants at once; its schedule, its pause and its count stay as they are."""
    return begin_now(tx, find_job(tx, words, asker), now)


def begin_now(tx: Transaction, scheduled: Scheduled, now: datetime) -> Run:
    """Begin a run at once, beside all that the schedule says."""
    job = scheduled.job
    if is_at_work(tx, job):
        raise Refused(f"`{job.name}` is at work already.")
    at_once = structs.replace(job, paused=False, next_at=now)
    tx.jobs.put(at_once)
    run = tx.jobs.begin_run(at_once, next_at=None)
    tx.jobs.put(job)
    if run is None:
        raise Refused(f"`{job.name}` has just been begun.")
    return _keep(tx, scheduled, run, "")


def is_at_work(tx: Transaction, job: Job) -> bool:
    """Tell whether a run of a job is not over."""
    return bool(tx.state.with_prefix(f"{UNFINISHED}{job.id}:"))


def unfinished(tx: Transaction) -> list[Run]:
    """Return the runs that are not over, whoever is at work on them."""
    runs = []
    for entry in tx.state.with_prefix(UNFINISHED):
        try:
            runs.append(read_run(entry.value))
        except msgspec.DecodeError as error:
            log.warning("%s cannot be read: %s", entry.key, error)
    return runs


def next_due(tx: Transaction) -> datetime | None:
    """Return when the next job is due."""
    return min((job.next_at for job in tx.jobs.find() if job.next_at and not job.paused), default=None)


def too_far_ahead(tx: Transaction, now: datetime) -> list[Job]:
    """Return recurring jobs that are due later than their schedule says, with the right time.

    Their time was set by a clock that was ahead, perhaps by years.
    """
    return [right for job in tx.jobs.find() if (right := _corrected(job, now)) is not None]


def correct_times(tx: Transaction, now: datetime) -> None:
    """Bring recurring jobs that wait for a time too far ahead back to their schedule."""
    for job in too_far_ahead(tx, now):
        log.warning("job %s (%s) waited for a time set by a wrong clock; it is due %s", job.id, job.name, job.next_at)
        tx.jobs.put(job)


def _corrected(job: Job, now: datetime) -> Job | None:
    if job.paused or job.next_at is None or job.next_at <= now + _ON_TIME:
        return None
    try:
        schedule = read_job(job).schedule
        if isinstance(schedule, Every) and schedule.since > now + _ON_TIME:
            schedule = Every(schedule.seconds, now)
        following = None if isinstance(schedule, Once) else next_after(schedule, now)
    except (msgspec.DecodeError, Refused):  # told when it is due
        return None
    if following is None or job.next_at <= following + _ON_TIME:
        return None
    return structs.replace(job, next_at=following, schedule=write_schedule(schedule))


def _begin(tx: Transaction, due: Job, manner: Manner) -> None:
    """Run what is due last, if it is not too late for it; everything before that was missed.

    What time it is now the store says, as it said what is due.
    """
    provisional = next_after(read_job(due).schedule, due.next_at) if due.next_at else None
    begun = tx.jobs.begin_run(due, next_at=provisional)
    if begun is None:
        return
    # From here on the job is ours until all this is written: what somebody has changed just before counts.
    scheduled = next(read_job(job) for job in tx.jobs.find() if job.id == due.id)
    job, plan = scheduled.job, scheduled.plan
    first, now = begun.due_at, max(begun.started_at, begun.due_at)
    last = max(last_until(scheduled.schedule, now) or first, first)
    late = now - last
    following = next_after(scheduled.schedule, now)
    if is_at_work(tx, job):
        _miss(tx, begun, _BUSY)
    elif late > _ON_TIME and (plan.catch_up == "never" or late > manner.grace):
        missed = _missed(scheduled, first, last)
        _miss(tx, begun, missed)
        key = f"job:{job.id}:missed:{first.timestamp():.6f}"
        send(tx, plan, Report(key=key, name=job.name, text=f"**{job.name}**: {missed}", at=now), manner.networks())
    else:
        remark = f"It was due {told(last, plan.zone)}." if late > _ON_TIME else ""
        run: JobRun | None = begun
        if last > first:
            earlier = _missed(scheduled, first, last - timedelta(seconds=1))
            run, remark = _skip_to(tx, job, begun, last, earlier), f"{earlier} {remark}".strip()
        if run is not None:
            left = None if plan.left is None else max(0, plan.left - 1)
            plan, following = structs.replace(plan, left=left), following if left != 0 else None
            _keep(tx, scheduled, run, remark)
    tx.jobs.put(structs.replace(job, next_at=following, payload=write_plan(plan)))


def _skip_to(tx: Transaction, job: Job, begun: JobRun, last: datetime, why: str) -> JobRun | None:
    """Give up a run for a later one of the same job, and return that; ``None`` if there was one for that time."""
    _miss(tx, begun, why)
    later = structs.replace(job, next_at=last)
    tx.jobs.put(later)
    return tx.jobs.begin_run(later, next_at=None)


def _keep(tx: Transaction, scheduled: Scheduled, begun: JobRun, remark: str) -> Run:
    """Give a run its conversation, if it has one, and put it where whoever works on runs finds it."""
    job, plan = scheduled.job, scheduled.plan
    title = f"{job.name}, {told(begun.due_at, plan.zone)}"
    new = NewSession(source=CRON, title=title, owner=job.owner, audience=plan.audience)
    session_id = SessionId("") if plan.plain else tx.sessions.create(new).id
    run = Run(
        job_id=job.id,
        name=job.name,
        owner=job.owner,
        due_at=begun.due_at,
        started_at=begun.started_at,
        session_id=session_id,
        plan=plan,
        remark=remark,
    )
    tx.state.put(run.key, write_run(run))
    note_change(tx)
    return run


def _miss(tx: Transaction, run: JobRun, why: str) -> None:
    tx.jobs.end_run(structs.replace(run, state="missed", output=why))


def _missed(scheduled: Scheduled, first: datetime, last: datetime) -> str:
    """Return a sentence about the times of a schedule from one that was missed to another."""
    zone = scheduled.plan.zone
    count = _count(scheduled.schedule, first, last)
    if count <= 1:
        return f"It was missed {told(first, zone)}: nothing ran here then."
    number = f"over {_MOST_COUNTED:,}" if count > _MOST_COUNTED else str(count)
    return f"It was missed {number} times since {told(first, zone)}: nothing ran here then."


def _count(schedule: Schedule, first: datetime, last: datetime) -> int:
    if isinstance(schedule, Every):
        return (last - first) // timedelta(seconds=schedule.seconds) + 1
    count, moment = 1, next_after(schedule, first)
    while moment is not None and moment <= last and count <= _MOST_COUNTED:
        count, moment = count + 1, next_after(schedule, moment)
    return count
