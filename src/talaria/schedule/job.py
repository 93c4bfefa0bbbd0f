"""Jobs and their runs as stored."""

from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.jobs import NOWHERE, ORIGIN, CatchUp, Job, JobRun
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.ids import JobId, SessionId
from talaria.schedule.recurrence import Schedule, parse_schedule

Stage = Literal["due", "script", "asked"]


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


UNFINISHED = "job-run:"
PENDING_RUN = NamedValue("job_run", PendingRun)

_encode = msgspec.json.Encoder().encode
_decode_plan = msgspec.json.Decoder(JobSpec).decode


def write_plan(plan: JobSpec) -> str:
    """Return an encoded plan."""
    return _encode(plan).decode()


def read_job(job: Job) -> ScheduledJob:
    """Return a decoded job."""
    return ScheduledJob(job, _decode_plan(job.payload), parse_schedule(job.schedule))
