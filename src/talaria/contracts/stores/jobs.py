"""Scheduled jobs and the record of their runs."""

from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import JobId, SessionId

RUNS_KEPT = 1_000
RunState = Literal["running", "done", "failed", "missed"]


class Job(Struct, frozen=True, kw_only=True):
    """A scheduled job."""

    id: JobId
    name: str
    schedule: str
    payload: str
    owner: str = ""
    paused: bool = False
    next_at: datetime | None = None


class JobRun(Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job_id: JobId
    due_at: datetime
    state: RunState
    started_at: datetime
    ended_at: datetime | None = None
    session_id: SessionId | None = None
    output: str = ""


class Jobs(Protocol):
    """The jobs of this store; each due run starts once, whatever the number of workers."""

    def put(self, job: Job) -> None:
        """Create a job or replace it."""

    def find(self, *, due: bool = False) -> list[Job]:
        """Return every job by name, or only those that are due, longest overdue first."""

    def delete(self, job_id: JobId) -> bool:
        """Remove a job and its runs."""

    def begin_run(self, job: Job, *, next_at: datetime | None) -> JobRun | None:
        """Start the due run of a job and set its next time.

        Of several workers that saw the same job one gets the run, the others ``None``.
        """

    def end_run(self, run: JobRun) -> None:
        """Record how a run ended; only the latest `RUNS_KEPT` of each job are stored."""

    def runs(self, job_id: JobId, limit: int = 20) -> list[JobRun]:
        """Return the latest runs, newest first."""
