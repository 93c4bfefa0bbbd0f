"""The jobs in the store: made, found, changed and removed by those whose they are."""

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import Struct, structs

from talaria.contracts.schedules import CRON, HOME, NOWHERE, ORIGIN, Asker, JobView, JobWish, RunView
from talaria.contracts.store import Transaction
from talaria.contracts.stores.jobs import Job, JobRun
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound, Refused
from talaria.core.ids import JobId, SessionId, new_id
from talaria.schedule.plan import Plan, Scheduled, Target, read_job, write_plan
from talaria.schedule.reading import read_schedule
from talaria.schedule.times import Calendar, find_zone, next_after, write_schedule
from talaria.schedule.wording import described, told
from talaria.sessions.channels import find_target

SCHEDULES = "schedules"  # the topic of hints that a job was changed, or is to run
HEARTBEAT = JobId("heartbeat")
_MOST, _MOST_OF_A_GUEST = 200, 10
_LONGEST, _LONGEST_NAME = 20_000, 60
_FAR = 20  # generations of conversations


class Rules(Struct, frozen=True):
    """What jobs are made by: the zone of the profile, and the chat networks that are set up."""

    zone: str
    networks: Collection[str] = ()


def add_job(tx: Transaction, wish: JobWish, asker: Asker, rules: Rules, now: datetime) -> Job:
    """Make a job; the same key of an asker again is the same job."""
    if made_by_a_job(tx, asker.session_id):
        raise Refused("A scheduled job makes no other jobs. Tell the person what should be scheduled instead.")
    if not wish.when:
        raise Refused("Say when it is due.")
    own = [one for one in tx.jobs.find() if one.owner == asker.owner and one.next_at is not None]
    most = _MOST_OF_A_GUEST if asker.owner else _MOST
    if len(own) >= most:
        raise Refused(f"There are {len(own)} jobs already, and that is the most: remove one first.")
    plan = Plan(
        zone=find_zone(wish.zone or rules.zone).key,
        made_at=now,
        session_id=asker.session_id,
        address=asker.address or _place(tx, asker.session_id),
        audience=asker.audience,
    )
    job = Job(id=_id(asker.key), name="", schedule="", payload="", owner=asker.owner)
    return _put(tx, Scheduled(job, plan, Calendar("", "")), wish, rules, now)


def change_job(tx: Transaction, words: str, wish: JobWish, asker: Asker, rules: Rules, now: datetime) -> Job:
    """Change what is given; a job that goes on again is due at its next time, not for what it has missed."""
    found = find_job(tx, words, asker)
    if found.job.id == HEARTBEAT:
        raise Refused("The heartbeat is changed in the settings: `talaria config set heartbeat.every 30m`.")
    return _put(tx, found, wish, rules, now)


def remove_job(tx: Transaction, words: str, asker: Asker) -> Job:
    """Remove a job with its history."""
    job = find_job(tx, words, asker).job
    tx.jobs.delete(job.id)
    note_change(tx)
    return job


def find_jobs(tx: Transaction, asker: Asker) -> list[Scheduled]:
    """Return the jobs that somebody may see where they are: their own, and before others those of this place."""
    own = [job for job in tx.jobs.find() if asker.everyone or job.owner == asker.owner]
    jobs = [read_job(job) for job in own if job.id != HEARTBEAT]
    return [one for one in jobs if asker.audience in {"", one.plan.audience}]


def find_job(tx: Transaction, words: str, asker: Asker) -> Scheduled:
    """Return the job that is meant by an id, a name, or a part of either."""
    name = words.strip().casefold()
    seen = find_jobs(tx, asker)
    if name == HEARTBEAT and not asker.owner and not asker.audience:
        seen = [*seen, *(read_job(job) for job in tx.jobs.find() if job.id == HEARTBEAT)]
    readings = (
        [one for one in seen if name in {one.job.id, one.job.name.casefold()}],
        [one for one in seen if name and one.job.id.startswith(name)],
        [one for one in seen if name and name in one.job.name.casefold()],
    )
    found = next(filter(None, readings), [])
    if not found:
        there = ", ".join(f"`{one.job.name}`" for one in seen[:10])
        raise NotFound(f"There is no job `{words}`; " + (f"there are {there}." if there else "there is none yet."))
    if len(found) > 1:
        lines = [f"  {one.job.id}  {one.job.name}" for one in found[:10]]
        raise Ambiguous("\n".join([f"`{words}` fits {len(found)} jobs; take the id of one:", *lines]))
    return found[0]


def made_by_a_job(tx: Transaction, session_id: SessionId | None) -> bool:
    """Tell whether a conversation was begun by a job, or for one that was."""
    for _ in range(_FAR):
        session = tx.sessions.get(session_id) if session_id else None
        if session is None:
            return False
        if session.source == CRON:
            return True
        session_id = session.parent_id
    return True


def targets_of(tx: Transaction, words: Sequence[str], networks: Collection[str]) -> tuple[Target, ...]:
    """Return places as people write them; raises `NotFound` or `Ambiguous` for what names none."""
    found = []
    for one in dict.fromkeys(word.strip() for word in words if word.strip()):
        if one in {ORIGIN, HOME, NOWHERE}:
            found.append(Target(one))
        else:
            address = find_target(tx, one, networks)
            found.append(Target(one, address if ":" in one else None))
    return tuple(found) or (Target(ORIGIN),)


def note_change(tx: Transaction) -> None:
    """Let whoever starts jobs see, at a glance, that there is something new."""
    tx.state.put(SCHEDULES, "")


def changes(tx: Transaction) -> int:
    """Return how often something was changed."""
    entry = tx.state.get(SCHEDULES)
    return entry.version if entry else 0


def view(scheduled: Scheduled, remarks: tuple[str, ...] = ()) -> JobView:
    """Return a job as it is shown."""
    job, plan = scheduled.job, scheduled.plan
    over = job.next_at is None and not job.paused
    return JobView(
        id=job.id,
        name=job.name,
        schedule=described(scheduled.schedule),
        zone=plan.zone,
        state="over" if over else "paused" if job.paused else "waiting",
        next_at=job.next_at,
        next_told=told(job.next_at, plan.zone) if job.next_at and not job.paused else "",
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


def view_run(run: JobRun, zone: str) -> RunView:
    """Return a run as it is shown."""
    return RunView(
        due_at=run.due_at,
        due_told=told(run.due_at, zone),
        state=run.state,
        started_at=run.started_at,
        ended_at=run.ended_at,
        session_id=run.session_id,
        output=run.output,
    )


def _place(tx: Transaction, session_id: SessionId | None) -> Address | None:
    bindings = tx.bindings.of_session(session_id) if session_id else []
    return bindings[0].address if bindings else None


def _id(key: str) -> JobId:
    return JobId(hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16] if key else new_id())


def _put(tx: Transaction, before: Scheduled, wish: JobWish, rules: Rules, now: datetime) -> Job:
    plan = _planned(tx, before, wish, rules)
    schedule = before.schedule
    if wish.when:
        schedule = read_schedule(wish.when, now=now, zone=plan.zone)
    elif wish.zone and isinstance(schedule, Calendar):
        schedule = structs.replace(schedule, zone=plan.zone)
    paused = before.job.paused if wish.paused is None else wish.paused
    is_new_time = bool(wish.when or wish.zone or wish.times) or (before.job.paused and not paused)
    job = structs.replace(
        before.job,
        name=_named(wish.name or before.job.name, plan),
        schedule=write_schedule(schedule),
        payload=write_plan(plan),
        paused=paused,
        next_at=next_after(schedule, now) if is_new_time else before.job.next_at,
    )
    tx.jobs.put(job)
    note_change(tx)
    return job


def _planned(tx: Transaction, before: Scheduled, wish: JobWish, rules: Rules) -> Plan:
    plan, given = before.plan, structs.asdict(wish)
    kept = ("prompt", "skills", "model", "folder", "script", "catch_up", "dollars")
    changes = {name: given[name] for name in kept if given[name] is not None}
    if wish.zone:
        changes["zone"] = find_zone(wish.zone).key
    if wish.times is not None:
        changes["left"] = wish.times or None
    if wish.deliver is not None:
        changes["deliver"] = targets_of(tx, wish.deliver, rules.networks)
    plan = structs.replace(plan, **changes)
    _check(plan, guest=bool(before.job.owner))
    return plan


def _check(plan: Plan, *, guest: bool) -> None:
    if not plan.prompt.strip() and not plan.script.strip():
        raise Refused("Say what is to be done: a prompt, a script, or both.")
    if len(plan.prompt) > _LONGEST or len(plan.script) > _LONGEST:
        raise Refused(f"A prompt and a script may have {_LONGEST:,} characters each.")
    if guest and (
        plan.script or plan.folder or plan.model or plan.skills or [one.words for one in plan.deliver] != [ORIGIN]
    ):
        raise Refused("Here a job has a prompt and a time, and reports in this chat; nothing else.")


def _named(name: str, plan: Plan) -> str:
    words = " ".join((name or plan.prompt or plan.script).split())
    return words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 1]}…"
