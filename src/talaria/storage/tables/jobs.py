"""Scheduled jobs and their runs."""

from datetime import datetime

from talaria.contracts.stores.jobs import RUNS_KEPT, Job, JobRun
from talaria.core.ids import JobId
from talaria.storage.sql import Row, Sql, from_stamp, maybe_moment, maybe_stamp, to_stamp

_JOB = "id, name, schedule, payload, owner, paused, next_at"


class JobsTable:
    """Implements `Jobs`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, job: Job) -> None:
        """Create a job or replace it."""
        self._sql.run(
            "INSERT INTO jobs (id, name, schedule, payload, owner, paused, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, schedule = excluded.schedule,"
            " payload = excluded.payload, owner = excluded.owner, paused = excluded.paused, next_at = excluded.next_at",
            (job.id, job.name, job.schedule, job.payload, job.owner, int(job.paused), maybe_stamp(job.next_at)),
        )

    def find(self, *, due: bool = False) -> list[Job]:
        """Return every job by name, or only those that are due, longest overdue first."""
        if not due:
            jobs = map(_job, self._sql.rows(f"SELECT {_JOB} FROM jobs"))
            return sorted(jobs, key=lambda job: (job.name.casefold(), job.id))
        rows = self._sql.rows(
            f"SELECT {_JOB} FROM jobs WHERE next_at <= ? AND paused = 0 ORDER BY next_at, id", (self._sql.now,)
        )
        return [_job(row) for row in rows]

    def delete(self, job_id: JobId) -> bool:
        """Remove a job and its runs."""
        self._sql.run("DELETE FROM job_runs WHERE job_id = ?", (job_id,))
        return self._sql.count("DELETE FROM jobs WHERE id = ?", (job_id,)) > 0

    def begin_run(self, job: Job, *, next_at: datetime | None) -> JobRun | None:
        """Start the run that ``job.next_at`` calls for and set the time of the next.

        A time that was recorded as missed by a clock that was ahead can still be run.
        """
        if job.next_at is None:
            return None
        due_at = to_stamp(job.next_at)
        won = self._sql.count(
            "UPDATE jobs SET next_at = ? WHERE id = ? AND next_at = ? AND paused = 0",
            (maybe_stamp(next_at), job.id, due_at),
        ) and self._sql.count(
            "INSERT INTO job_runs (job_id, due_at, state, started_at) VALUES (?, ?, 'running', ?)"
            " ON CONFLICT (job_id, due_at) DO UPDATE SET state = 'running', started_at = excluded.started_at,"
            " ended_at = NULL, output = ''"
            " WHERE job_runs.state = 'missed' AND job_runs.started_at > excluded.started_at",
            (job.id, due_at, self._sql.now),
        )
        if not won:
            return None
        return JobRun(job_id=job.id, due_at=job.next_at, state="running", started_at=from_stamp(self._sql.now))

    def end_run(self, run: JobRun) -> None:
        """Record how a run ended, and forget those that are far back."""
        self._sql.run(
            "UPDATE job_runs SET state = ?, ended_at = ?, session_id = ?, output = ? WHERE job_id = ? AND due_at = ?",
            (run.state, self._sql.now, run.session_id, run.output, run.job_id, to_stamp(run.due_at)),
        )
        self._sql.run(
            "DELETE FROM job_runs WHERE job_id = ? AND state <> 'running' AND due_at <="
            " (SELECT due_at FROM job_runs WHERE job_id = ? ORDER BY due_at DESC LIMIT 1 OFFSET ?)",
            (run.job_id, run.job_id, RUNS_KEPT),
        )

    def runs(self, job_id: JobId, limit: int = 20) -> list[JobRun]:
        """Return the latest runs, newest first."""
        rows = self._sql.rows(
            "SELECT job_id, due_at, state, started_at, ended_at, session_id, output FROM job_runs"
            " WHERE job_id = ? ORDER BY due_at DESC LIMIT ?",
            (job_id, limit),
        )
        return [_run(row) for row in rows]


def _job(row: Row) -> Job:
    job_id, name, schedule, payload, owner, paused, next_at = row
    return Job(
        id=job_id,
        name=name,
        schedule=schedule,
        payload=payload,
        owner=owner,
        paused=bool(paused),
        next_at=maybe_moment(next_at),
    )


def _run(row: Row) -> JobRun:
    job_id, due_at, state, started_at, ended_at, session_id, output = row
    return JobRun(
        job_id=job_id,
        due_at=from_stamp(due_at),
        state=state,
        started_at=from_stamp(started_at),
        ended_at=maybe_moment(ended_at),
        session_id=session_id,
        output=output,
    )
