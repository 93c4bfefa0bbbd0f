"""What a job does when it is due: the part of it that is kept as its payload."""

from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.schedules import NOWHERE, ORIGIN, CatchUp
from talaria.contracts.stores.jobs import Job, JobRun
from talaria.core.addresses import Address
from talaria.core.ids import JobId, SessionId
from talaria.schedule.times import Schedule, parse_schedule

Stage = Literal["due", "script", "asked"]


class Target(Struct, frozen=True, omit_defaults=True):
    """Where a run reports, as it was written; the address of a chat that was named is fixed from then on."""

    words: str
    address: Address | None = None


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do and whom to tell; ``left`` is how often it may still run, ``None`` without an end.

    ``session_id``, ``address`` and ``audience`` are those of the conversation in which it was asked for.
    """

    zone: str
    made_at: datetime
    prompt: str = ""
    skills: tuple[str, ...] = ()
    model: str = ""
    folder: str = ""
    script: str = ""
    left: int | None = None
    deliver: tuple[Target, ...] = (Target(ORIGIN),)
    catch_up: CatchUp = "once"
    dollars: float = 0.0
    session_id: SessionId | None = None
    address: Address | None = None
    audience: str = ""

    @property
    def plain(self) -> bool:
        """Whether the script is all there is to it: no model is asked."""
        return bool(self.script) and not self.prompt.strip()

    @property
    def quiet(self) -> bool:
        """Whether it is to report nowhere."""
        return all(target.words == NOWHERE for target in self.deliver)


class Scheduled(Struct, frozen=True):
    """A job, taken apart."""

    job: Job
    plan: Plan
    schedule: Schedule


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that is not over, in the store for whoever goes on with it; the plan is that of its beginning.

    ``session_id`` is its conversation, empty where no model is asked. ``remark`` is what is to be said about its time.
    ``stage`` is ``script`` once that has begun, and ``asked`` once the agent has been asked in the conversation.
    ``tries`` counts the workers that began with it.
    """

    job_id: JobId
    name: str
    owner: str
    due_at: datetime
    started_at: datetime
    session_id: SessionId
    plan: Plan
    remark: str = ""
    stage: Stage = "due"
    tries: int = 0

    @property
    def key(self) -> str:
        """Under which it is kept, and leased."""
        return f"{UNFINISHED}{self.job_id}:{self.due_at.timestamp():.6f}"

    def record(self) -> JobRun:
        """Return it as the history has it."""
        return JobRun(
            job_id=self.job_id,
            due_at=self.due_at,
            state="running",
            started_at=self.started_at,
            session_id=self.session_id or None,
        )


UNFINISHED = "job-run:"

_encode = msgspec.json.Encoder().encode
_decode_plan = msgspec.json.Decoder(Plan).decode
_decode_run = msgspec.json.Decoder(Run).decode


def write_plan(plan: Plan) -> str:
    """Return a plan as it is kept."""
    return _encode(plan).decode()


def read_job(job: Job) -> Scheduled:
    """Return a job, taken apart."""
    return Scheduled(job, _decode_plan(job.payload), parse_schedule(job.schedule))


def write_run(run: Run) -> str:
    """Return a run as it is kept until it is over."""
    return _encode(run).decode()


def read_run(text: str) -> Run:
    """Return a run that was kept."""
    return _decode_run(text)
