"""Heartbeat: no model calls while there is nothing to do, and reports only when there is news."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest
from tests.schedule.schedule_fixture import HOME, RULES, ScheduleFixture, open_schedule
from tests.storage.engines import StoreLocation

from talaria.contracts.platform import Content
from talaria.contracts.stores.sessions import NewSession
from talaria.core.errors import NotFound
from talaria.runtime.outbox import queue_notice
from talaria.schedule.heartbeat import HeartbeatPlan, HeartbeatWorker, read_heartbeat_file
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import ModelServer, Say

DAY = HeartbeatPlan(timedelta(minutes=30), time(8), time(22), RULES, "home")


@pytest.fixture
async def schedule(
    tmp_path: Path, store_location: StoreLocation, server: ModelServer, clock: SettableClock
) -> AsyncIterator[ScheduleFixture]:
    async with open_schedule(tmp_path, store_location, server, clock) as schedule:
        await schedule.application.store.write(lambda tx: write_home(tx, HomeChat(HOME)))
        yield schedule


def heartbeat_of(schedule: ScheduleFixture, beat: HeartbeatPlan | None = DAY) -> HeartbeatWorker:
    return HeartbeatWorker(schedule.application.store, schedule.folder, lambda: beat, schedule.clock)


async def run_hours(schedule: ScheduleFixture, hours: float, beat: HeartbeatPlan | None = DAY) -> int:
    """Let time pass in steps of ten minutes, and return how many runs there were."""
    count = 0
    for _ in range(int(hours * 6)):
        await heartbeat_of(schedule, beat).look()
        count += await schedule.pass_time(minutes=10)
    return count


async def test_an_idle_day_costs_no_model_call(schedule: ScheduleFixture, server: ModelServer) -> None:
    (schedule.folder / "HEARTBEAT.md").write_text("# Every now and then\n\n<!-- nothing\n- yet -->\n- [x] done\n-\n")
    assert await run_hours(schedule, 24) == 0
    assert server.received == []
    assert await schedule.posted() == []


@pytest.mark.slow
async def test_tasks_of_the_heartbeat_file_are_checked_in_waking_hours(
    schedule: ScheduleFixture, server: ModelServer
) -> None:
    (schedule.folder / "HEARTBEAT.md").write_text("- [ ] Tell me when the parcel is there.\n")
    server.script(*[Say("[SILENT]")] * 19, Say("The parcel is there."), *[Say("[SILENT]")] * 50)
    assert await run_hours(schedule, 24) == 28  # from 8 to 22, twice an hour
    assert [text for _, text in await schedule.posted()] == ["The parcel is there."]
    assert "Tell me when the parcel is there." in server.received[0].question


async def test_failed_delivery_is_reported_by_the_heartbeat(schedule: ScheduleFixture, server: ModelServer) -> None:
    store = schedule.application.store
    await heartbeat_of(schedule).look()
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="telegram")))
    item = await store.write(lambda tx: queue_notice(tx, session.id, HOME, Content(text="Hello"), "hello"))
    assert item is not None
    schedule.clock.advance(timedelta(minutes=1))
    await store.write(
        lambda tx: (tx.outbox.claim("matrix", timedelta(minutes=1)), tx.outbox.fail(item.id, "no such room"))
    )
    server.script(Say("A message did not get through."))
    assert await run_hours(schedule, 3) == 1
    assert "no such room" in server.received[0].question


async def test_heartbeat_is_off_without_a_setting(schedule: ScheduleFixture, server: ModelServer) -> None:
    (schedule.folder / "HEARTBEAT.md").write_text("Look at the mail.\n")
    assert await run_hours(schedule, 12, None) == 0
    assert server.received == []


async def test_heartbeat_target_without_a_home_chat_is_an_error(schedule: ScheduleFixture) -> None:
    (schedule.folder / "HEARTBEAT.md").write_text("Look at the mail.\n")
    with pytest.raises(NotFound, match="Telegram"):
        await heartbeat_of(schedule, HeartbeatPlan(timedelta(minutes=30), time(0), time(0), RULES, "telegram")).look()


@pytest.mark.parametrize(
    ("begins", "ends", "awake"),
    [(8, 22, "8 12 21"), (22, 8, "0 7 22 23"), (0, 0, "0 7 8 12 21 22 23")],
)
def test_waking_hours_may_span_midnight(begins: int, ends: int, awake: str) -> None:
    beat = HeartbeatPlan(timedelta(minutes=30), time(begins), time(ends), RULES, "home")
    found = [
        hour
        for hour in (0, 7, 8, 12, 21, 22, 23)
        if beat.is_awake(datetime(2026, 1, 2, hour - 1 if hour else 23, tzinfo=UTC))
    ]
    assert " ".join(map(str, found)) == awake


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("", ""),
        ("# Heading\n\n---\n", ""),
        ("- [x] done\n* \n", ""),
        ("<!-- not\nyet", ""),
        ("# Mail\n- look at it\n", "# Mail\n- look at it"),
        ("<!-- a --> Look.", "Look."),
    ],
)
def test_headings_comments_and_done_items_are_no_tasks(tmp_path: Path, text: str, tasks: str) -> None:
    assert read_heartbeat_file(tmp_path) == ""
    (tmp_path / "HEARTBEAT.md").write_text(text)
    assert read_heartbeat_file(tmp_path) == tasks


async def test_heartbeat_continues_after_a_clock_that_was_ahead(schedule: ScheduleFixture, server: ModelServer) -> None:
    (schedule.folder / "HEARTBEAT.md").write_text("- [ ] Tell me when the parcel is there.\n")
    server.script(*[Say("[SILENT]")] * 10)
    schedule.clock.advance(timedelta(days=366))
    assert await run_hours(schedule, 0.5) == 1
    schedule.clock.advance(-timedelta(days=366))
    assert await run_hours(schedule, 1) == 2
