"""Missed runs are caught up at most once, recorded, and reported."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.schedule.schedule_fixture import HOME, OWNER, RULES, ScheduleFixture, open_schedule
from tests.storage.engines import StoreLocation

from talaria.contracts.jobs import JobRequest, JobView
from talaria.schedule.due_runs import start_named_job
from talaria.schedule.job_store import change_job
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until


@pytest.fixture
async def schedule(
    tmp_path: Path, sqlite_location: StoreLocation, server: ModelServer, clock: SettableClock
) -> AsyncIterator[ScheduleFixture]:
    async with open_schedule(tmp_path, sqlite_location, server, clock) as schedule:
        await schedule.application.store.write(lambda tx: write_home(tx, HomeChat(HOME)))
        yield schedule


async def states(schedule: ScheduleFixture, job: JobView) -> list[tuple[str, datetime]]:
    return [(run.state, run.due_at) for run in reversed(await schedule.runs(job))]


async def test_a_day_without_a_gateway_is_caught_up_once(schedule: ScheduleFixture, server: ModelServer) -> None:
    job = await schedule.add("every 1h", name="Weather")
    server.script(Say("It rains."))
    assert await schedule.pass_time(hours=24, minutes=30) == 1
    assert await states(schedule, job) == [
        ("missed", NOON + timedelta(hours=1)),
        ("done", NOON + timedelta(hours=24)),
    ]
    ((_, text),) = await schedule.posted()
    assert text.startswith("*It missed 23 runs since Fri 2026-01-02 14:00 Europe/Berlin")
    assert "It was due Sat 2026-01-03 13:00 Europe/Berlin.*" in text
    assert text.endswith("It rains.")
    assert "missed 23 runs" in server.received[0].question
    assert (await schedule.job(job)).next_at == NOON + timedelta(hours=25)


async def test_a_run_missed_by_too_long_is_reported_instead_of_run(
    schedule: ScheduleFixture, server: ModelServer
) -> None:
    job = await schedule.add("in 30m", name="Tea")
    assert await schedule.pass_time(hours=13) == 0
    assert await states(schedule, job) == [("missed", NOON + timedelta(minutes=30))]
    assert await schedule.posted() == [
        (
            HOME.chat_id,
            "**Tea**: It missed its run at Fri 2026-01-02 13:30 Europe/Berlin: no gateway was running.",
        )
    ]
    assert server.received == []
    assert (await schedule.job(job)).state == "over"


async def test_a_job_that_never_catches_up_waits_for_its_next_time(schedule: ScheduleFixture) -> None:
    job = await schedule.add("every day 13:00", name="News", catch_up="never")
    assert await schedule.pass_time(days=3, hours=2) == 0
    assert [state for state, _ in await states(schedule, job)] == ["missed"]
    ((_, text),) = await schedule.posted()
    assert "missed 3 runs" in text
    assert await schedule.pass_time(hours=22) == 1
    assert [state for state, _ in await states(schedule, job)] == ["missed", "done"]


async def test_run_with_a_small_delay_is_not_missed(schedule: ScheduleFixture, server: ModelServer) -> None:
    job = await schedule.add("every 1h", catch_up="never")
    server.script(Say("It rains."))
    assert await schedule.pass_time(hours=1, seconds=90) == 1
    assert [text for _, text in await schedule.posted()] == ["It rains."]
    assert [state for state, _ in await states(schedule, job)] == ["done"]


async def test_many_missed_runs_are_one_row_and_one_run(schedule: ScheduleFixture) -> None:
    job = await schedule.add("* * * * *")
    assert await schedule.pass_time(days=400) == 1
    assert [state for state, _ in await states(schedule, job)] == ["missed", "done"]
    (_, text), *_ = await schedule.posted()
    assert "over 1,000 runs" in text


async def test_missed_runs_do_not_count_towards_the_number_of_runs(schedule: ScheduleFixture) -> None:
    job = await schedule.add("every 1h", times=2)
    await schedule.pass_time(hours=5)
    assert (await schedule.job(job)).times_left == 1
    await schedule.pass_time(hours=1)
    assert (await schedule.job(job)).state == "over"


async def test_job_that_is_still_running_is_not_started_again(schedule: ScheduleFixture) -> None:
    job = await schedule.add("every 1h")
    now = schedule.clock.now()
    await schedule.application.store.write(lambda tx: start_named_job(tx, job.id, OWNER, now))
    await schedule.pass_time(hours=1)
    assert sorted(state for state, _ in await states(schedule, job)) == ["done", "missed"]
    assert "still going" in next(run.output for run in await schedule.runs(job) if run.state == "missed")


async def test_nightly_job_runs_once_per_night_when_summer_time_starts(schedule: ScheduleFixture) -> None:
    schedule.clock.advance(datetime(2026, 3, 27, 22, tzinfo=UTC) - NOON)
    job = await schedule.add("every day 2:30")
    for _ in range(3 * 24 * 4):
        await schedule.pass_time(minutes=15)
    shown = [f"{at:%d %H:%M}" for state, at in await states(schedule, job) if state == "done"]
    assert shown == ["28 01:30", "29 01:00", "30 00:30"]


async def test_job_with_an_unknown_time_zone_is_paused_without_affecting_others(schedule: ScheduleFixture) -> None:
    good = await schedule.add("every 1h", name="Good")
    bad = await schedule.add("every day 13:30", name="Bad")
    store = schedule.application.store
    (stored,) = await store.read(lambda tx: [one for one in tx.jobs.find() if one.id == bad.id])
    unknown = structs.replace(stored, schedule=stored.schedule.replace("Europe/Berlin", "Mars/Olympus"))
    await store.write(lambda tx: tx.jobs.put(unknown))
    await schedule.pass_time(hours=1)
    assert [state for state, _ in await states(schedule, good)] == ["done"]
    assert (await schedule.job(bad)).state == "paused"


async def test_changed_prompt_is_used_by_the_next_run(schedule: ScheduleFixture, server: ModelServer) -> None:
    job = await schedule.add("every 1h", prompt="The old words.", name="Words")
    now = schedule.clock.now()
    request = JobRequest(prompt="The new words.")
    await schedule.application.store.write(lambda tx: change_job(tx, job.id, request, OWNER, RULES, now))
    await schedule.pass_time(hours=1)
    assert "The new words." in server.received[0].question
    assert (await schedule.job(job)).prompt == "The new words."


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=366)], ids=["an hour", "a year"])
@pytest.mark.parametrize("when", ["* * * * *", "every 10m", "every day 15:00"])
async def test_recurring_job_runs_on_time_after_a_clock_that_was_ahead(
    schedule: ScheduleFixture, when: str, ahead: timedelta
) -> None:
    job = await schedule.add(when)
    schedule.clock.advance(ahead)
    await schedule.make_scheduler().run_pending_turns()
    schedule.clock.advance(-ahead)
    await schedule.make_scheduler().run_pending_turns()
    scheduled = await schedule.job(job)
    assert scheduled.next_at is not None
    assert scheduled.next_at <= schedule.clock.now() + timedelta(days=1)
    schedule.clock.advance(scheduled.next_at - schedule.clock.now())
    assert await schedule.make_scheduler().run_pending_turns() == 1
    assert ("done", scheduled.next_at) in await states(schedule, job)


async def test_job_created_while_the_clock_was_ahead_counts_from_now(schedule: ScheduleFixture) -> None:
    schedule.clock.advance(timedelta(days=366))
    job = await schedule.add("every 10m")
    schedule.clock.advance(-timedelta(days=366))
    await schedule.make_scheduler().run_pending_turns()
    assert (await schedule.job(job)).next_at == schedule.clock.now() + timedelta(minutes=10)
    assert await schedule.pass_time(minutes=10) == 1
    assert await schedule.pass_time(minutes=10) == 1


async def test_distant_one_off_job_is_not_rescheduled(schedule: ScheduleFixture) -> None:
    job = await schedule.add("in 30d")
    await schedule.make_scheduler().run_pending_turns()
    assert (await schedule.job(job)).next_at == NOON + timedelta(days=30)


async def test_running_scheduler_reschedules_when_the_clock_is_set_back(schedule: ScheduleFixture) -> None:
    schedule.clock.advance(timedelta(hours=1))
    job = await schedule.add("every 30m")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(schedule.make_scheduler().serve())
        await schedule.pass_time(minutes=30)
        schedule.clock.advance(-timedelta(hours=1))

        async def is_due_in_half_an_hour() -> bool:
            return (await schedule.job(job)).next_at == schedule.clock.now() + timedelta(minutes=30)

        await until(is_due_in_half_an_hour)
        serving.cancel()
