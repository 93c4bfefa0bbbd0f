"""Scheduled jobs and their runs."""

from datetime import datetime

from talaria.contracts.jobs import RUNS_KEPT, Job, JobRun
from talaria.core.ids import JobId
from talaria.storage.tables.sql import Row, Sql, from_optional_stamp, from_stamp, to_optional_stamp, to_stamp

_JOB = "id, name, schedule, payload, owner, paused, next_at"


class JobsTable:
    """SQL implementation of `Jobs`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def put(self, job: Job) -> None:
        """Insert or replace a job."""
        self._sql.run(
            "INSERT INTO jobs (id, name, schedule, payload, owner, paused, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, schedule = excluded.schedule,"
            " payload = excluded.payload, owner = excluded.owner, paused = excluded.paused, next_at = excluded.next_at",
            (job.id, job.name, job.schedule, job.payload, job.owner, int(job.paused), to_optional_stamp(job.next_at)),
        )

    def find(self, *, due: bool = False) -> list[Job]:
        """Return all jobs sorted by name, or only due ones, longest overdue first."""
        if not due:
            jobs = map(_to_job, self._sql.rows(f"SELECT {_JOB} FROM jobs"))
            return sorted(jobs, key=lambda job: (job.name.casefold(), job.id))
        rows = self._sql.rows(
            f"SELECT {_JOB} FROM jobs WHERE next_at <= ? AND paused = 0 ORDER BY next_at, id", (self._sql.now,)
        )
        return [_to_job(row) for row in rows]

    def delete(self, job_id: JobId) -> bool:
        """Delete a job and its runs; ``False`` if there was none."""
        self._sql.run("DELETE FROM job_runs WHERE job_id = ?", (job_id,))
        return self._sql.count("DELETE FROM jobs WHERE id = ?", (job_id,)) > 0

    def begin_run(self, job: Job, *, next_at: datetime | None) -> JobRun | None:
        """Start the run due at ``job.next_at`` and store the next due time.

        Returns ``None`` if the job has no due time, is paused or was changed, or if another worker started the run.
        A run that was recorded as missed while the clock was ahead can still start.
        """
        if job.next_at is None:
            return None
        due_at = to_stamp(job.next_at)
        is_started = self._sql.count(
            "UPDATE jobs SET next_at = ? WHERE id = ? AND next_at = ? AND paused = 0",
            (to_optional_stamp(next_at), job.id, due_at),
        ) and self._sql.count(
            "INSERT INTO job_runs (job_id, due_at, state, started_at) VALUES (?, ?, 'running', ?)"
            " ON CONFLICT (job_id, due_at) DO UPDATE SET state = 'running', started_at = excluded.started_at,"
            " ended_at = NULL, output = ''"
            " WHERE job_runs.state = 'missed' AND job_runs.started_at > excluded.started_at",
            (job.id, due_at, self._sql.now),
        )
        if not is_started:
            return None
        return JobRun(job_id=job.id, due_at=job.next_at, state="running", started_at=from_stamp(self._sql.now))

    def end_run(self, run: JobRun) -> None:
        """Store the result of a run and delete finished runs older than the latest ``RUNS_KEPT``."""
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
        """Return up to ``limit`` runs of a job, newest first."""
        rows = self._sql.rows(
            "SELECT job_id, due_at, state, started_at, ended_at, session_id, output FROM job_runs"
            " WHERE job_id = ? ORDER BY due_at DESC LIMIT ?",
            (job_id, limit),
        )
        return [_to_run(row) for row in rows]


def _to_job(row: Row) -> Job:
    job_id, name, schedule, payload, owner, paused, next_at = row
    return Job(
        id=job_id,
        name=name,
        schedule=schedule,
        payload=payload,
        owner=owner,
        paused=bool(paused),
        next_at=from_optional_stamp(next_at),
    )


def _to_run(row: Row) -> JobRun:
    job_id, due_at, state, started_at, ended_at, session_id, output = row
    return JobRun(
        job_id=job_id,
        due_at=from_stamp(due_at),
        state=state,
        started_at=from_stamp(started_at),
        ended_at=from_optional_stamp(ended_at),
        session_id=session_id,
        output=output,
    )
