"""Due times of schedules: across both clock changes in three time zones, and over a year."""

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from talaria.core.errors import Refused
from talaria.schedule.recurrence import (
    Calendar,
    Every,
    Once,
    Schedule,
    find_system_zone,
    find_zone,
    format_moment,
    last_until,
    next_after,
    parse_schedule,
    read_fields,
    write_schedule,
)
from talaria.settings.sections.checks import is_time_zone

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
# Zone, a moment on the day before the clocks go forward, and one on the day before they go back.
CHANGES = (
    (BERLIN, datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)),
    (NEW_YORK, datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 10, 31, 12, tzinfo=UTC)),
    (LORD_HOWE, datetime(2026, 10, 2, 20, tzinfo=UTC), datetime(2026, 4, 3, 20, tzinfo=UTC)),
)
EXPRESSIONS = (
    "30 2 * * *",
    "15 2 * * *",
    "45 1 * * *",
    "0 3 * * *",
    "*/20 1-3 * * *",
    "0 */2 * * *",
    "*/15 * * * *",
    "7 * * * *",
    "* * * * *",
    "30 1,2 * * sun",
    "59 23 * * *",
)


def due(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    """Return all times after one moment up to another, found by repeatedly computing the next."""
    found = []
    following = next_after(schedule, since)
    while following is not None and following <= until:
        found.append(following)
        assert len(found) < 100_000, "the schedule does not end"
        following = next_after(schedule, following)
    return found


def expected(expression: str, zone: ZoneInfo, since: datetime, until: datetime) -> list[datetime]:
    """Return the same times by checking the local time of every minute."""
    fields = read_fields(expression)
    minutes = [since + MINUTE * number for number in range(int((until - since) / MINUTE) + 1)]
    walls = [moment.astimezone(zone).replace(tzinfo=None) for moment in minutes]
    if fields.in_every_hour:
        fitting = [at for at, wall in zip(minutes, walls, strict=True) if _is_due(fields.times, expression, wall)]
        return [at for at in fitting if at > since]
    found = set()
    for wall in _walls(walls[0], walls[-1]):
        if _is_due(fields.times, expression, wall):
            shown = [at for at, one in zip(minutes, walls, strict=True) if one == wall]
            behind = [at for at, one in zip(minutes, walls, strict=True) if one > wall]
            found.add((shown or behind)[0])
    return sorted(at for at in found if at > since)


def _is_due(times: tuple[time, ...], expression: str, wall: datetime) -> bool:
    return read_fields(expression).fits(wall.date()) and wall.time() in times


def _walls(first: datetime, last: datetime) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += MINUTE


@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "forward", "back"), CHANGES)
def test_due_times_are_right_across_clock_changes(
    zone: str, forward: datetime, back: datetime, expression: str
) -> None:
    for since in (forward, back):
        zone_info = ZoneInfo(zone)
        offsets = {(since + hours * timedelta(hours=1)).astimezone(zone_info).utcoffset() for hours in range(37)}
        assert len(offsets) == 2, "the clocks are changed in these hours"
        until = since + timedelta(hours=36)
        assert due(Calendar(expression, zone), since, until) == expected(expression, zone_info, since, until)


@pytest.mark.parametrize(
    ("zone", "since", "wall", "shown"),
    [
        (BERLIN, CHANGES[0][1], "2:30", "03:00"),
        (NEW_YORK, CHANGES[1][1], "2:30", "03:00"),
        (LORD_HOWE, CHANGES[2][1], "2:15", "02:30"),
    ],
)
def test_local_time_that_does_not_exist_is_due_at_the_next_one_that_does(
    zone: str, since: datetime, wall: str, shown: str
) -> None:
    hour, minute = wall.split(":")
    first, second = due(Calendar(f"{minute} {hour} * * *", zone), since, since + 2 * DAY)
    assert f"{first.astimezone(ZoneInfo(zone)):%H:%M}" == shown
    assert f"{second.astimezone(ZoneInfo(zone)):%H:%M}" == f"{int(hour):02}:{minute}"


@pytest.mark.parametrize(("zone", "_", "since"), CHANGES)
def test_local_time_that_exists_twice_is_due_only_the_first_time(zone: str, _: datetime, since: datetime) -> None:
    minute, hour = {BERLIN: (30, 2), NEW_YORK: (30, 1), LORD_HOWE: (45, 1)}[zone]
    first, second = due(Calendar(f"{minute} {hour} * * *", zone), since, since + 2 * DAY)
    assert first.astimezone(ZoneInfo(zone)).fold == 0
    assert second - first > DAY


def test_local_date_that_does_not_exist_is_due_on_the_next_day() -> None:
    samoa = "Pacific/Apia"  # went from the 29th of December to the 31st
    found = due(Calendar("0 9 * * *", samoa), datetime(2011, 12, 29, 12, tzinfo=UTC), datetime(2012, 1, 1, tzinfo=UTC))
    shown = [f"{one.astimezone(ZoneInfo(samoa)):%d %H:%M}" for one in found]
    assert shown == ["29 09:00", "31 00:00", "31 09:00", "01 09:00"]


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
def test_number_of_due_times_in_a_year(zone: str) -> None:
    since, until = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)), datetime(2027, 1, 1, tzinfo=ZoneInfo(zone))
    since, until = since - timedelta(seconds=1), until - timedelta(seconds=1)
    hours = int((until - since) / timedelta(hours=1))
    days = [date(2026, 1, 1) + number * DAY for number in range(365)]
    counts = {
        "0 9 * * *": 365,
        "30 2 * * *": 365,
        "0 9 * * 1-5": 261,
        "0 9 * * mon": 52,
        "0 0 1 * *": 12,
        "0 0 31 * *": 7,
        "0 0 29 2 *": 0,
        "0 * * * *": hours - (zone == LORD_HOWE),  # half an hour is skipped there, and with it 2:00
        "0 12 13 * fri": 12 + 52 - 3,  # either is enough; in 2026 three 13ths are Fridays
        "0 12 */7 * mon": sum(day.day in range(1, 32, 7) and day.weekday() == 0 for day in days),  # both count
    }
    assert {text: len(due(Calendar(text, zone), since, until)) for text in counts} == counts


def test_february_29_is_found_across_a_skipped_leap_year() -> None:
    assert next_after(Calendar("0 0 29 2 *", "UTC"), datetime(2096, 3, 1, tzinfo=UTC)) == datetime(
        2104, 2, 29, tzinfo=UTC
    )
    assert next_after(Calendar("0 0 31 2 *", "UTC"), datetime(2096, 3, 1, tzinfo=UTC)) is None


def test_one_off_time_is_due_once_and_interval_does_not_drift() -> None:
    noon = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert next_after(Once(noon), noon - MINUTE) == noon
    assert next_after(Once(noon), noon) is None
    every = Every(5400, noon)
    assert due(every, noon, noon + timedelta(hours=5)) == [noon + timedelta(minutes=90) * n for n in (1, 2, 3)]
    assert next_after(every, noon - DAY) == noon + timedelta(minutes=90)
    assert next_after(every, noon + timedelta(minutes=100)) == noon + timedelta(minutes=180)


MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kathmandu", "America/St_Johns", "Africa/Cairo"])
MINUTES = st.sampled_from(["*", "*/15", "0", "30", "7,52", "10-20/3"])
HOURS = st.sampled_from(["*", "0", "2", "1-3", "*/6", "23"])
EXPRESSION = st.builds(
    "{} {} {} * {}".format,
    MINUTES,
    HOURS,
    st.sampled_from(["*", "1", "*/2", "28-31"]),
    st.sampled_from(["*", "0", "mon-fri"]),
)
SCHEDULES = st.one_of(
    st.builds(Calendar, EXPRESSION, ZONES),
    st.builds(Every, st.integers(60, 10_000_000), MOMENTS),
    st.builds(Once, MOMENTS),
)


@given(SCHEDULES, MOMENTS)
def test_next_time_is_in_the_future_with_no_other_before_it(schedule: Schedule, moment: datetime) -> None:
    following = next_after(schedule, moment)
    if following is None:
        assert isinstance(schedule, Once)
        return
    assert following > moment
    assert next_after(schedule, following - timedelta(seconds=1)) == following
    assert next_after(schedule, moment + (following - moment) / 2) in {following, next_after(schedule, following)}
    assert parse_schedule(write_schedule(schedule)) == schedule


@settings(max_examples=60)
@given(SCHEDULES, MOMENTS)
def test_last_time_is_the_one_before_the_next(schedule: Schedule, moment: datetime) -> None:
    last = last_until(schedule, moment)
    if last is None:
        assert isinstance(schedule, Once) or (
            isinstance(schedule, Every) and moment < schedule.since + timedelta(days=3300)
        )
        return
    assert last <= moment
    following = next_after(schedule, last)
    assert following is None or following > moment


def test_utc_needs_no_time_zone_data(no_zone_data: None) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert format_moment(noon, "UTC") == "Sun 2026-03-01 12:00 UTC"
    assert due(Calendar("0 7 * * *", "UTC"), noon, noon + DAY) == [datetime(2026, 3, 2, 7, tzinfo=UTC)]
    assert find_system_zone({"TZ": "UTC"}) == "UTC"
    assert is_time_zone("UTC")
    with pytest.raises(Refused, match="Install the package `tzdata`"):
        find_zone("Europe/Berlin")


@pytest.fixture
def no_zone_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    loaded = [name for name in sys.modules if name.partition(".")[0] == "tzdata"]
    for name in {"tzdata", *loaded}:
        monkeypatch.setitem(sys.modules, name, None)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(to=before)
    ZoneInfo.clear_cache()
