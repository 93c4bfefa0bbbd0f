"""Jobs and their runs as stored: create, find, change and remove, with the owners' rights."""

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct, structs

from talaria.contracts.jobs import (
    CRON,
    HOME,
    NOWHERE,
    ORIGIN,
    CatchUp,
    Job,
    JobRequest,
    JobRequester,
    JobRun,
    JobView,
    RunView,
)
from talaria.contracts.store import Transaction
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound, Refused
from talaria.core.ids import JobId, SessionId, new_id
from talaria.schedule.parse_when import read_schedule
from talaria.schedule.recurrence import (
    Calendar,
    Schedule,
    describe_schedule,
    find_zone,
    format_moment,
    next_after,
    parse_schedule,
    write_schedule,
)
from talaria.sessions.chat_directory import find_target

Stage = Literal["due", "script", "asked"]
UNFINISHED = "job-run:"
_encode = msgspec.json.Encoder().encode
SCHEDULE_CHANGES = NamedValue("schedule_changes", bool)  # its version counts the changes
SCHEDULES = "schedules"  # the topic that is notified when a job was changed, or is to run
HEARTBEAT = JobId("heartbeat")
_MAX_JOBS, _MAX_GUEST_JOBS = 200, 10
_MAX_LENGTH, _MAX_NAME = 20_000, 60
_MAX_GENERATIONS = 20  # generations of sessions


class ReportTarget(Struct, frozen=True, omit_defaults=True):
    """The target of reports, as it was written; the address of a named chat is fixed from then on."""

    words: str
    address: Address | None = None


class JobSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of a job and its report targets; ``left`` is the number of remaining runs, if limited.

    ``session_id``, ``address`` and ``audience`` are those of the session in which it was created.
    """

    zone: str
    made_at: datetime
    prompt: str = ""
    skills: tuple[str, ...] = ()
    model: str = ""
    folder: str = ""
    script: str = ""
    left: int | None = None
    deliver: tuple[ReportTarget, ...] = (ReportTarget(ORIGIN),)
    catch_up: CatchUp = "once"
    dollars: float = 0.0
    session_id: SessionId | None = None
    address: Address | None = None
    audience: str = ""

    @property
    def plain(self) -> bool:
        """Return whether the job is only a script: no model is called."""
        return bool(self.script) and not self.prompt.strip()

    @property
    def quiet(self) -> bool:
        """Return whether it reports nowhere."""
        return all(target.words == NOWHERE for target in self.deliver)


class ScheduledJob(Struct, frozen=True):
    """A decoded job."""

    job: Job
    plan: JobSpec
    schedule: Schedule


class PendingRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unfinished run, stored for the worker that continues it; its plan is that of its start.

    ``session_id`` is its session, empty if no model is called. ``remark`` is a note about its time. ``stage`` is
    ``script`` once that was started, and ``asked`` once the agent was called in the session. ``tries`` counts the
    workers that started it.
    """

    job_id: JobId
    name: str
    owner: str
    due_at: datetime
    started_at: datetime
    session_id: SessionId
    plan: JobSpec
    remark: str = ""
    stage: Stage = "due"
    tries: int = 0

    @property
    def key(self) -> str:
        """Return its key in the store, also the name of its lease."""
        return f"{UNFINISHED}{self.job_id}:{self.due_at.timestamp():.6f}"

    def record(self) -> JobRun:
        """Return its record in the history."""
        return JobRun(
            job_id=self.job_id,
            due_at=self.due_at,
            state="running",
            started_at=self.started_at,
            session_id=self.session_id or None,
        )


PENDING_RUN = NamedValue("job_run", PendingRun)
_decode_plan = msgspec.json.Decoder(JobSpec).decode


def write_plan(plan: JobSpec) -> str:
    """Return an encoded plan."""
    return _encode(plan).decode()


def read_job(job: Job) -> ScheduledJob:
    """Return a decoded job."""
    return ScheduledJob(job, _decode_plan(job.payload), parse_schedule(job.schedule))


class JobRules(Struct, frozen=True):
    """Rules for creating jobs: the profile's time zone, and the configured chat networks."""

    zone: str
    networks: Collection[str] = ()


def add_job(tx: Transaction, request: JobRequest, asker: JobRequester, rules: JobRules, now: datetime) -> Job:
    """Create a job; the same key of a requester gives the same job."""
    if is_job_session(tx, asker.session_id):
        raise Refused("A scheduled job can't create jobs. Tell the person what to schedule.")
    if not request.when:
        raise Refused("Say when it should run.")
    own = [one for one in tx.jobs.find() if one.owner == asker.owner and one.next_at is not None]
    most = _MAX_GUEST_JOBS if asker.owner else _MAX_JOBS
    if len(own) >= most:
        raise Refused(f"There are already {len(own)} jobs, the maximum. Remove one first.")
    plan = JobSpec(
        zone=find_zone(request.zone or rules.zone).key,
        made_at=now,
        session_id=asker.session_id,
        address=asker.address or _find_address(tx, asker.session_id),
        audience=asker.audience,
    )
    job = Job(id=_make_id(asker.key), name="", schedule="", payload="", owner=asker.owner)
    return _store_job(tx, ScheduledJob(job, plan, Calendar("", "")), request, rules, now)


def change_job(
    tx: Transaction, words: str, request: JobRequest, asker: JobRequester, rules: JobRules, now: datetime
) -> Job:
    """Change the given values; a resumed job is due at its next time, not for missed ones."""
    found = find_job(tx, words, asker)
    if found.job.id == HEARTBEAT:
        raise Refused("Change the heartbeat in the settings: `talaria config set heartbeat.every 30m`.")
    return _store_job(tx, found, request, rules, now)


def remove_job(tx: Transaction, words: str, asker: JobRequester) -> Job:
    """Remove a job with its history."""
    job = find_job(tx, words, asker).job
    tx.jobs.delete(job.id)
    note_change(tx)
    return job


def find_jobs(tx: Transaction, asker: JobRequester) -> list[ScheduledJob]:
    """Return the jobs that a requester may see: their own, and before an audience only those of that chat."""
    own = [job for job in tx.jobs.find() if asker.everyone or job.owner == asker.owner]
    jobs = [read_job(job) for job in own if job.id != HEARTBEAT]
    return [one for one in jobs if asker.audience in {"", one.plan.audience}]


def find_job(tx: Transaction, words: str, asker: JobRequester) -> ScheduledJob:
    """Return the job with this id or name, or a part of either."""
    name = words.strip().casefold()
    visible = find_jobs(tx, asker)
    if name == HEARTBEAT and not asker.owner and not asker.audience:
        visible = [*visible, *(read_job(job) for job in tx.jobs.find() if job.id == HEARTBEAT)]
    matches = (
        [one for one in visible if name in {one.job.id, one.job.name.casefold()}],
        [one for one in visible if name and one.job.id.startswith(name)],
        [one for one in visible if name and name in one.job.name.casefold()],
    )
    found = next(filter(None, matches), [])
    if not found:
        known_names = ", ".join(f"`{one.job.name}`" for one in visible[:10])
        raise NotFound(
            f"There is no job `{words}`. " + (f"Jobs: {known_names}." if known_names else "There are no jobs yet.")
        )
    if len(found) > 1:
        lines = [f"  {one.job.id}  {one.job.name}" for one in found[:10]]
        raise Ambiguous("\n".join([f"`{words}` matches {len(found)} jobs. Use an id:", *lines]))
    return found[0]


def is_job_session(tx: Transaction, session_id: SessionId | None) -> bool:
    """Return whether a session was started by a job, or for one that was."""
    for _ in range(_MAX_GENERATIONS):
        session = tx.sessions.get(session_id) if session_id else None
        if session is None:
            return False
        if session.source == CRON:
            return True
        session_id = session.parent_id
    return True


def resolve_targets(tx: Transaction, words: Sequence[str], networks: Collection[str]) -> tuple[ReportTarget, ...]:
    """Return targets as people write them; raises `NotFound` or `Ambiguous` for unknown ones."""
    found = []
    for one in dict.fromkeys(word.strip() for word in words if word.strip()):
        if one in {ORIGIN, HOME, NOWHERE}:
            found.append(ReportTarget(one))
        else:
            address = find_target(tx, one, networks)
            found.append(ReportTarget(one, address if ":" in one else None))
    return tuple(found) or (ReportTarget(ORIGIN),)


def note_change(tx: Transaction) -> None:
    """Notify the scheduler that a job or run was changed, and count the change for its periodic check."""
    SCHEDULE_CHANGES.write(tx, SINGLE, value=True)
    tx.notify(SCHEDULES)


def read_change_counter(tx: Transaction) -> int:
    """Return the change counter."""
    return SCHEDULE_CHANGES.version(tx, SINGLE)


def build_job_view(scheduled: ScheduledJob, remarks: tuple[str, ...] = ()) -> JobView:
    """Return a job for display."""
    job, plan = scheduled.job, scheduled.plan
    over = job.next_at is None and not job.paused
    return JobView(
        id=job.id,
        name=job.name,
        schedule=describe_schedule(scheduled.schedule),
        zone=plan.zone,
        state="over" if over else "paused" if job.paused else "waiting",
        next_at=job.next_at,
        next_told=format_moment(job.next_at, plan.zone) if job.next_at and not job.paused else "",
        prompt=plan.prompt,
        script=plan.script,
        skills=plan.skills,
        model=plan.model,
        folder=plan.folder,
        deliver=tuple(target.words for target in plan.deliver),
        times_left=plan.left,
        catch_up=plan.catch_up,
        dollars=plan.dollars,
        owner=job.owner,
        made_at=plan.made_at,
        remarks=remarks,
    )


def build_run_view(run: JobRun, zone: str) -> RunView:
    """Return a run for display."""
    return RunView(
        due_at=run.due_at,
        due_told=format_moment(run.due_at, zone),
        state=run.state,
        started_at=run.started_at,
        ended_at=run.ended_at,
        session_id=run.session_id,
        output=run.output,
    )


def _find_address(tx: Transaction, session_id: SessionId | None) -> Address | None:
    bindings = tx.bindings.of_session(session_id) if session_id else []
    return bindings[0].address if bindings else None


def _make_id(key: str) -> JobId:
    return JobId(hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16] if key else new_id())


def _store_job(tx: Transaction, before: ScheduledJob, request: JobRequest, rules: JobRules, now: datetime) -> Job:
    plan = _build_spec(tx, before, request, rules)
    schedule = before.schedule
    if request.when:
        schedule = read_schedule(request.when, now=now, zone=plan.zone)
    elif request.zone and isinstance(schedule, Calendar):
        schedule = structs.replace(schedule, zone=plan.zone)
    paused = before.job.paused if request.paused is None else request.paused
    is_new_time = bool(request.when or request.zone or request.times) or (before.job.paused and not paused)
    job = structs.replace(
        before.job,
        name=_make_name(request.name or before.job.name, plan),
        schedule=write_schedule(schedule),
        payload=write_plan(plan),
        paused=paused,
        next_at=next_after(schedule, now) if is_new_time else before.job.next_at,
    )
    tx.jobs.put(job)
    note_change(tx)
    return job


def _build_spec(tx: Transaction, before: ScheduledJob, request: JobRequest, rules: JobRules) -> JobSpec:
    plan, values = before.plan, structs.asdict(request)
    copied = ("prompt", "skills", "model", "folder", "script", "catch_up", "dollars")
    changes = {name: values[name] for name in copied if values[name] is not None}
    if request.zone:
        changes["zone"] = find_zone(request.zone).key
    if request.times is not None:
        changes["left"] = request.times or None
    if request.deliver is not None:
        changes["deliver"] = resolve_targets(tx, request.deliver, rules.networks)
    plan = structs.replace(plan, **changes)
    _check_spec(plan, guest=bool(before.job.owner))
    return plan


def _check_spec(plan: JobSpec, *, guest: bool) -> None:
    if not plan.prompt.strip() and not plan.script.strip():
        raise Refused("Say what to do: give a prompt, a script, or both.")
    if len(plan.prompt) > _MAX_LENGTH or len(plan.script) > _MAX_LENGTH:
        raise Refused(f"A prompt and a script may each have at most {_MAX_LENGTH:,} characters.")
    if guest and (
        plan.script or plan.folder or plan.model or plan.skills or [one.words for one in plan.deliver] != [ORIGIN]
    ):
        raise Refused("In this chat a job can only have a prompt and a time, and it reports here.")


def _make_name(name: str, plan: JobSpec) -> str:
    words = " ".join((name or plan.prompt or plan.script).split())
    return words if len(words) <= _MAX_NAME else f"{words[: _MAX_NAME - 1]}…"
