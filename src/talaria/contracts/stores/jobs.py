"""Scheduled jobs and the record of their runs."""

from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import JobId, SessionId

RUNS_KEPT = 1_000
RunState = Literal["running", "done", "failed", "missed"]


class Job(Struct, frozen=True, kw_only=True):
    """Something to do at times that nobody has to remember."""

    id: JobId
    name: str
    schedule: str
    payload: str
    owner: str = ""
    paused: bool = False
    next_at: datetime | None = None


class JobRun(Struct, frozen=True, kw_only=True):
    """One time that a job was due."""

    job_id: JobId
    due_at: datetime
    state: RunState
    started_at: datetime
    ended_at: datetime | None = None
    session_id: SessionId | None = None
    output: str = ""


class Jobs(Protocol):
    """The jobs of this store; each due run begins once, whatever the number of workers."""

    def put(self, job: Job) -> None:
        """Create a job or replace it."""

    def find(self, *, due: bool = False) -> list[Job]:
        """Return every job by name, or only those that are due, longest overdue first."""

    def delete(self, job_id: JobId) -> bool:
        """Remove a job and its runs."""

    def begin_run(self, job: Job, *, next_at: datetime | None) -> JobRun | None:
        """Start the run that ``job.next_at`` calls for and set the time of the next.

        Of several workers that saw the same job one gets the run, the others ``None``.
        """

    def end_run(self, run: JobRun) -> None:
        """Record how a run ended; of each job the latest `RUNS_KEPT` are kept."""

    def runs(self, job_id: JobId, limit: int = 20) -> list[JobRun]:
        """Return the latest runs, newest first."""
