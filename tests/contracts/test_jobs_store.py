"""Scheduled jobs and their runs."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from talaria.contracts.jobs import RUNS_KEPT, Job, JobRun
from talaria.contracts.store import Database, Transaction
from talaria.core.ids import JobId, SessionId
from talaria.testing.clock import NOON, SettableClock

HOUR = timedelta(hours=1)
NEWS = Job(id=JobId("news"), name="News", schedule="0 * * * *", payload="{}", owner="ana", next_at=NOON)


@pytest.fixture
def news(mine: Transaction) -> Job:
    mine.jobs.put(NEWS)
    return NEWS


def test_job_is_stored_unchanged_and_can_be_replaced(mine: Transaction, news: Job) -> None:
    assert mine.jobs.find() == [news]
    paused = replace(news, name="Old news", schedule="", payload="x", owner="", paused=True, next_at=None)
    mine.jobs.put(paused)
    assert mine.jobs.find() == [paused]


def test_jobs_are_sorted_by_name_ignoring_case(mine: Transaction) -> None:
    for name in ("b", "C", "a"):
        mine.jobs.put(Job(id=JobId(f"job-{name}"), name=name, schedule="", payload=""))
    assert [job.name for job in mine.jobs.find()] == ["a", "b", "C"]


def test_due_jobs_are_listed_longest_overdue_first(mine: Transaction, clock: SettableClock) -> None:
    for name, minutes in (("late", 5), ("now", 60), ("later", 61), ("latest", 1)):
        job = Job(id=JobId(name), name=name, schedule="", payload="", next_at=NOON + timedelta(minutes=minutes))
        mine.jobs.put(job)
    mine.jobs.put(Job(id=JobId("paused"), name="", schedule="", payload="", next_at=NOON, paused=True))
    mine.jobs.put(Job(id=JobId("never"), name="", schedule="", payload=""))
    clock.advance(HOUR)
    assert [job.name for job in mine.jobs.find(due=True)] == ["latest", "late", "now"]


def test_due_run_starts_once_and_sets_the_next_time(mine: Transaction, theirs: Transaction, news: Job) -> None:
    run = mine.jobs.begin_run(news, next_at=NOON + HOUR)
    assert run == JobRun(job_id=news.id, due_at=NOON, state="running", started_at=NOON)
    assert theirs.jobs.begin_run(news, next_at=NOON + HOUR) is None
    assert mine.jobs.find() == [replace(news, next_at=NOON + HOUR)]
    assert mine.jobs.runs(news.id) == [run]


def test_job_paused_rescheduled_or_deleted_meanwhile_does_not_start(mine: Transaction, news: Job) -> None:
    mine.jobs.put(replace(news, paused=True))
    assert mine.jobs.begin_run(news, next_at=None) is None
    mine.jobs.put(replace(news, next_at=NOON + HOUR))
    assert mine.jobs.begin_run(news, next_at=None) is None
    mine.jobs.delete(news.id)
    assert mine.jobs.begin_run(news, next_at=None) is None
    assert mine.jobs.begin_run(replace(news, next_at=None), next_at=None) is None
    assert mine.jobs.runs(news.id) == []


def test_started_run_does_not_start_again_after_the_job_time_is_reset(mine: Transaction, news: Job) -> None:
    mine.jobs.begin_run(news, next_at=NOON + HOUR)
    mine.jobs.put(replace(news, name="Edited from what was read before the run"))
    assert mine.jobs.begin_run(news, next_at=NOON + HOUR) is None
    assert [job.next_at for job in mine.jobs.find()] == [NOON + HOUR]
    assert len(mine.jobs.runs(news.id)) == 1


def test_outcome_of_a_run_is_stored(mine: Transaction, news: Job, clock: SettableClock) -> None:
    run = mine.jobs.begin_run(news, next_at=None)
    assert run is not None
    clock.advance(HOUR)
    mine.jobs.end_run(replace(run, state="failed", session_id=SessionId("one"), output="no network"))
    assert mine.jobs.runs(news.id) == [
        JobRun(
            job_id=news.id,
            due_at=NOON,
            state="failed",
            started_at=NOON,
            ended_at=NOON + HOUR,
            session_id=SessionId("one"),
            output="no network",
        )
    ]


def test_the_latest_runs_are_listed_newest_first(mine: Transaction, news: Job) -> None:
    job = news
    for _ in range(25):
        assert job.next_at is not None
        mine.jobs.begin_run(job, next_at=job.next_at + HOUR)
        [job] = mine.jobs.find()
    runs = mine.jobs.runs(news.id)
    assert [run.due_at for run in runs] == [NOON + HOUR * number for number in range(24, 4, -1)]
    assert mine.jobs.runs(news.id, limit=1) == runs[:1]


def test_deleting_a_job_deletes_its_runs(mine: Transaction, news: Job) -> None:
    mine.jobs.begin_run(news, next_at=None)
    assert mine.jobs.delete(news.id)
    assert not mine.jobs.delete(news.id)
    assert (mine.jobs.find(), mine.jobs.runs(news.id)) == ([], [])


def test_old_ended_runs_are_deleted(database: Database, news: Job) -> None:
    def run_often(tx: Transaction) -> None:
        job = news
        for number in range(RUNS_KEPT + 3):
            following = NOON + HOUR * (number + 1)
            run = tx.jobs.begin_run(job, next_at=following)
            assert run is not None
            if number != 1:  # this one has not ended yet
                tx.jobs.end_run(replace(run, state="done"))
            job = replace(job, next_at=following)

    database.write(run_often)
    remaining = database.read(lambda tx: tx.jobs.runs(news.id, RUNS_KEPT * 2))
    assert len(remaining) == RUNS_KEPT + 1
    assert [(run.state, run.due_at) for run in remaining[-2:]] == [("done", NOON + 3 * HOUR), ("running", NOON + HOUR)]
