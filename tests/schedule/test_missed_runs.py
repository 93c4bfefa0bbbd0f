"""Missed runs are caught up at most once, recorded, and reported."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.schedule.schedule_fixture import HOME, OWNER, RULES, Office, open_office
from tests.storage.engines import Place

from talaria.contracts.jobs import JobRequest, JobView
from talaria.schedule.due_runs import start_named_job
from talaria.schedule.job_store import change_job
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until


@pytest.fixture
async def office(
    tmp_path: Path, sqlite_place: Place, server: ModelServer, clock: SettableClock
) -> AsyncIterator[Office]:
    async with open_office(tmp_path, sqlite_place, server, clock) as office:
        await office.application.store.write(lambda tx: write_home(tx, HomeChat(HOME)))
        yield office


async def states(office: Office, job: JobView) -> list[tuple[str, datetime]]:
    return [(run.state, run.due_at) for run in reversed(await office.runs(job))]


async def test_a_day_without_a_gateway_is_caught_up_once(office: Office, server: ModelServer) -> None:
    job = await office.add("every 1h", name="Weather")
    server.script(Say("It rains."))
    assert await office.pass_time(hours=24, minutes=30) == 1
    assert await states(office, job) == [
        ("missed", NOON + timedelta(hours=1)),
        ("done", NOON + timedelta(hours=24)),
    ]
    ((_, text),) = await office.posted()
    assert text.startswith("*It missed 23 runs since Fri 2026-01-02 14:00 Europe/Berlin")
    assert "It was due Sat 2026-01-03 13:00 Europe/Berlin.*" in text
    assert text.endswith("It rains.")
    assert "missed 23 runs" in server.received[0].question
    assert (await office.job(job)).next_at == NOON + timedelta(hours=25)


async def test_a_run_missed_by_too_long_is_reported_instead_of_run(office: Office, server: ModelServer) -> None:
    job = await office.add("in 30m", name="Tea")
    assert await office.pass_time(hours=13) == 0
    assert await states(office, job) == [("missed", NOON + timedelta(minutes=30))]
    assert await office.posted() == [
        (
            HOME.chat_id,
            "**Tea**: It missed its run at Fri 2026-01-02 13:30 Europe/Berlin: no gateway was running.",
        )
    ]
    assert server.received == []
    assert (await office.job(job)).state == "over"


async def test_a_job_that_never_catches_up_waits_for_its_next_time(office: Office) -> None:
    job = await office.add("every day 13:00", name="News", catch_up="never")
    assert await office.pass_time(days=3, hours=2) == 0
    assert [state for state, _ in await states(office, job)] == ["missed"]
    ((_, text),) = await office.posted()
    assert "missed 3 runs" in text
    assert await office.pass_time(hours=22) == 1
    assert [state for state, _ in await states(office, job)] == ["missed", "done"]


async def test_run_with_a_small_delay_is_not_missed(office: Office, server: ModelServer) -> None:
    job = await office.add("every 1h", catch_up="never")
    server.script(Say("It rains."))
    assert await office.pass_time(hours=1, seconds=90) == 1
    assert [text for _, text in await office.posted()] == ["It rains."]
    assert [state for state, _ in await states(office, job)] == ["done"]


async def test_many_missed_runs_are_one_row_and_one_run(office: Office) -> None:
    job = await office.add("* * * * *")
    assert await office.pass_time(days=400) == 1
    assert [state for state, _ in await states(office, job)] == ["missed", "done"]
    (_, text), *_ = await office.posted()
    assert "over 1,000 runs" in text


async def test_missed_runs_do_not_count_towards_the_number_of_runs(office: Office) -> None:
    job = await office.add("every 1h", times=2)
    await office.pass_time(hours=5)
    assert (await office.job(job)).times_left == 1
    await office.pass_time(hours=1)
    assert (await office.job(job)).state == "over"


async def test_job_that_is_still_running_is_not_started_again(office: Office) -> None:
    job = await office.add("every 1h")
    now = office.clock.now()
    await office.application.store.write(lambda tx: start_named_job(tx, job.id, OWNER, now))
    await office.pass_time(hours=1)
    assert sorted(state for state, _ in await states(office, job)) == ["done", "missed"]
    assert "still going" in next(run.output for run in await office.runs(job) if run.state == "missed")


async def test_nightly_job_runs_once_per_night_when_summer_time_starts(office: Office) -> None:
    office.clock.advance(datetime(2026, 3, 27, 22, tzinfo=UTC) - NOON)
    job = await office.add("every day 2:30")
    for _ in range(3 * 24 * 4):
        await office.pass_time(minutes=15)
    shown = [f"{at:%d %H:%M}" for state, at in await states(office, job) if state == "done"]
    assert shown == ["28 01:30", "29 01:00", "30 00:30"]


async def test_job_with_an_unknown_time_zone_is_paused_without_affecting_others(office: Office) -> None:
    good = await office.add("every 1h", name="Good")
    bad = await office.add("every day 13:30", name="Bad")
    store = office.application.store
    (stored,) = await store.read(lambda tx: [one for one in tx.jobs.find() if one.id == bad.id])
    unknown = structs.replace(stored, schedule=stored.schedule.replace("Europe/Berlin", "Mars/Olympus"))
    await store.write(lambda tx: tx.jobs.put(unknown))
    await office.pass_time(hours=1)
    assert [state for state, _ in await states(office, good)] == ["done"]
    assert (await office.job(bad)).state == "paused"


async def test_changed_prompt_is_used_by_the_next_run(office: Office, server: ModelServer) -> None:
    job = await office.add("every 1h", prompt="The old words.", name="Words")
    now = office.clock.now()
    request = JobRequest(prompt="The new words.")
    await office.application.store.write(lambda tx: change_job(tx, job.id, request, OWNER, RULES, now))
    await office.pass_time(hours=1)
    assert "The new words." in server.received[0].question
    assert (await office.job(job)).prompt == "The new words."


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=366)], ids=["an hour", "a year"])
@pytest.mark.parametrize("when", ["* * * * *", "every 10m", "every day 15:00"])
async def test_recurring_job_runs_on_time_after_a_clock_that_was_ahead(
    office: Office, when: str, ahead: timedelta
) -> None:
    job = await office.add(when)
    office.clock.advance(ahead)
    await office.ticker().run_pending_turns()
    office.clock.advance(-ahead)
    await office.ticker().run_pending_turns()
    scheduled = await office.job(job)
    assert scheduled.next_at is not None
    assert scheduled.next_at <= office.clock.now() + timedelta(days=1)
    office.clock.advance(scheduled.next_at - office.clock.now())
    assert await office.ticker().run_pending_turns() == 1
    assert ("done", scheduled.next_at) in await states(office, job)


async def test_job_created_while_the_clock_was_ahead_counts_from_now(office: Office) -> None:
    office.clock.advance(timedelta(days=366))
    job = await office.add("every 10m")
    office.clock.advance(-timedelta(days=366))
    await office.ticker().run_pending_turns()
    assert (await office.job(job)).next_at == office.clock.now() + timedelta(minutes=10)
    assert await office.pass_time(minutes=10) == 1
    assert await office.pass_time(minutes=10) == 1


async def test_distant_one_off_job_is_not_rescheduled(office: Office) -> None:
    job = await office.add("in 30d")
    await office.ticker().run_pending_turns()
    assert (await office.job(job)).next_at == NOON + timedelta(days=30)


async def test_running_scheduler_reschedules_when_the_clock_is_set_back(office: Office) -> None:
    office.clock.advance(timedelta(hours=1))
    job = await office.add("every 30m")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(office.ticker().serve())
        await office.pass_time(minutes=30)
        office.clock.advance(-timedelta(hours=1))

        async def is_due_in_half_an_hour() -> bool:
            return (await office.job(job)).next_at == office.clock.now() + timedelta(minutes=30)

        await until(is_due_in_half_an_hour)
        serving.cancel()
