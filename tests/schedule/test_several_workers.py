"""Several workers on one store: one worker per due run, and others resume interrupted runs."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.schedule.schedule_fixture import HOME, OWNER, ScheduleFixture, open_schedule
from tests.storage.engines import StoreLocation

from talaria.contracts.jobs import JobRequest
from talaria.contracts.sandbox import ShellResult
from talaria.core.errors import Refused
from talaria.core.session_context import SessionContext
from talaria.schedule.due_runs import CatchUpPolicy, list_unfinished_runs, start_due_runs, start_named_job
from talaria.schedule.run_executor import LEASE, RunDependencies, execute_run
from talaria.schedule.scheduler import Scheduler
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until


@pytest.fixture
async def offices(
    tmp_path: Path, store_location: StoreLocation, server: ModelServer, clock: SettableClock
) -> AsyncIterator[tuple[ScheduleFixture, ScheduleFixture]]:
    """Two workers on one store; the first has no real process, so that only its lease shows its end."""
    async with (
        open_schedule(tmp_path, store_location, server, clock, "elsewhere/0:1:first") as first,
        open_schedule(tmp_path, store_location, server, clock, "elsewhere/0:2:second") as second,
    ):
        await first.application.store.write(lambda tx: write_home(tx, HomeChat(HOME)))
        yield first, second


async def test_each_due_run_is_claimed_by_one_of_two_workers(offices: tuple[ScheduleFixture, ScheduleFixture]) -> None:
    first, second = offices
    jobs = [await first.add("30m", prompt=None, script=f"echo {number}") for number in range(20)]
    first.clock.advance(timedelta(minutes=30))
    await asyncio.gather(first.make_scheduler().run_pending_turns(), second.make_scheduler().run_pending_turns())
    await second.make_scheduler().run_pending_turns()
    assert len(first.scripts) + len(second.scripts) == 20
    assert [[run.state for run in await first.runs(job)] for job in jobs] == [["done"]] * 20
    assert len(await first.posted()) == 20


async def test_claimed_run_is_taken_over_only_after_release(
    offices: tuple[ScheduleFixture, ScheduleFixture], server: ModelServer
) -> None:
    first, second = offices
    job = await first.add("30m")
    first.clock.advance(timedelta(minutes=30))
    server.script(Say("slow " * 1000, pause=0.1), Say("It rains."))
    ticker = first.make_scheduler()
    await ticker.look()
    await server.arrived(1)
    assert await second.make_scheduler().run_pending_turns() == 1  # it finds the run claimed by another worker
    assert [run.state for run in await second.runs(job)] == ["running"]
    await ticker.close(patience=0)
    assert await second.make_scheduler().run_pending_turns() == 1
    assert [(run.state, run.output) for run in await second.runs(job)] == [("done", "It rains.")]
    assert await second.posted() == [(HOME.chat_id, "It rains.")]


async def test_worker_that_lost_its_lease_does_not_finish_the_run(
    offices: tuple[ScheduleFixture, ScheduleFixture],
) -> None:
    first, second = offices
    job = await first.add("30m", prompt=None, script="date")
    gate, started = asyncio.Event(), asyncio.Event()

    async def slow(line: str, folder: Path, context: SessionContext) -> ShellResult:
        started.set()
        await gate.wait()
        return ShellResult(0, "late")

    means: RunDependencies = structs.replace(first.dependencies, script=slow)
    first.clock.advance(timedelta(minutes=30))
    ticker = Scheduler(means, lambda: timedelta(hours=1))
    await ticker.look()
    await started.wait()
    first.clock.advance(2 * LEASE)
    await second.make_scheduler().run_pending_turns()
    gate.set()
    await ticker.close(patience=30)
    (run,) = await second.runs(job)
    assert (run.state, "interrupted" in run.output) == ("failed", True)
    assert len(await second.posted()) == 1


async def test_run_fails_after_five_attempts_that_crash(offices: tuple[ScheduleFixture, ScheduleFixture]) -> None:
    first, _ = offices
    job = await first.add("30m", skills=("plumbing",))

    def fatal(name: str) -> str:
        raise RuntimeError("out of memory")

    means: RunDependencies = structs.replace(first.dependencies, skill=fatal)
    first.clock.advance(timedelta(minutes=30))
    await first.application.store.write(lambda tx: start_due_runs(tx, CatchUpPolicy(timedelta(hours=1), lambda: ())))
    (run,) = await first.application.store.read(list_unfinished_runs)
    for _ in range(5):
        with pytest.raises(RuntimeError):
            await execute_run(run, means)
    assert await execute_run(run, means)
    assert [(run.state, "each of 5 attempts" in run.output) for run in await first.runs(job)] == [("failed", True)]


async def test_running_job_cannot_be_started_manually(offices: tuple[ScheduleFixture, ScheduleFixture]) -> None:
    first, second = offices
    job = await first.add("every 1h")
    now = first.clock.now()
    await first.application.store.write(lambda tx: start_named_job(tx, job.id, OWNER, now))
    with pytest.raises(Refused, match="already running"):
        await second.application.store.write(lambda tx: start_named_job(tx, job.id, OWNER, now))


async def test_scheduler_wakes_when_another_worker_adds_a_run(
    offices: tuple[ScheduleFixture, ScheduleFixture], server: ModelServer
) -> None:
    first, second = offices
    serving = first.jobs.create_task(first.make_scheduler().serve())
    server.script(Say("It rains."))
    job = await second.application.schedules.add(JobRequest(when="every 1h", prompt="Weather?", name="Weather"), OWNER)
    await second.application.schedules.run(job.id, OWNER)
    await until(first.posted)
    serving.cancel()
    assert await first.posted() == [(HOME.chat_id, "It rains.")]
