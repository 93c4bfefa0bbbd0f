"""Parsing of times that people write."""

from datetime import UTC, datetime

import pytest

from talaria.core.errors import Refused
from talaria.schedule.parse_when import read_schedule, split_schedule
from talaria.schedule.recurrence import Calendar, Every, describe_schedule, find_zone, format_moment, next_after

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 16, 6, 40, tzinfo=UTC)  # a Monday, 7:40 in Berlin


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("30m", "Mon 2026-11-16 08:10"),
        ("in 30m", "Mon 2026-11-16 08:10"),
        ("In 1 hour and 30 min", "Mon 2026-11-16 09:10"),
        ("1h30m", "Mon 2026-11-16 09:10"),
        ("9:00", "Mon 2026-11-16 09:00"),
        ("7:00", "Tue 2026-11-17 07:00"),
        ("at 7pm", "Mon 2026-11-16 19:00"),
        ("today 12:00", "Mon 2026-11-16 12:00"),
        ("tomorrow 9:00", "Tue 2026-11-17 09:00"),
        ("Tomorrow at noon", "Tue 2026-11-17 12:00"),
        ("monday 7:00", "Mon 2026-11-23 07:00"),
        ("monday 9:00", "Mon 2026-11-16 09:00"),
        ("on friday at 12am", "Fri 2026-11-20 00:00"),
        ("2026-12-24 18:00", "Thu 2026-12-24 18:00"),
        ("2026-12-24T18:00:00Z", "Thu 2026-12-24 19:00"),
        ("2026-12-24T18:00-05:00", "Fri 2026-12-25 00:00"),
        ("2027-03-28 02:30", "Sun 2027-03-28 03:00"),  # which does not exist
    ],
)
def test_time_without_every_is_a_single_run(text: str, when: str) -> None:
    schedule = read_schedule(text, now=NOW, zone=BERLIN)
    at = next_after(schedule, NOW)
    assert at is not None
    assert format_moment(at, BERLIN) == f"{when} {BERLIN}"
    assert next_after(schedule, at) is None


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("every monday 9:00", "0 9 * * 1"),
        ("every Mon, Wed and Fri at 6:30pm", "30 18 * * 1,3,5"),
        ("every saturday sunday 10:00", "0 10 * * 6,0"),
        ("every day at midnight", "0 0 * * *"),
        ("daily 7:05", "5 7 * * *"),
        ("every weekday 8am", "0 8 * * 1-5"),
        ("weekends 11:00", "0 11 * * 0,6"),
        ("every month on the 1st at 9:00", "0 9 1 * *"),
        ("monthly 15 22:00", "0 22 15 * *"),
        ("0 9 * * 1-5", "0 9 * * 1-5"),
        ("cron */15 9-17 * jan-mar mon", "*/15 9-17 * jan-mar mon"),
        ("@daily", "@daily"),
    ],
)
def test_days_and_cron_expressions_become_calendar_schedules(text: str, expression: str) -> None:
    schedule = read_schedule(text, now=NOW, zone=BERLIN)
    assert schedule == Calendar(expression, BERLIN)
    assert read_schedule(describe_schedule(schedule), now=NOW, zone=BERLIN) == schedule


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("every 30m", 1800), ("every 2 hours", 7200), ("every 1h30m", 5400), ("every hour", 3600), ("every 3d", 259_200)],
)
def test_interval_is_counted_from_now(text: str, seconds: int) -> None:
    schedule = read_schedule(text, now=NOW, zone=BERLIN)
    assert schedule == Every(seconds, NOW)
    assert read_schedule(describe_schedule(schedule), now=NOW, zone=BERLIN) == schedule


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("soon", "`every 2h`"),
        ("", "`every 2h`"),
        ("every", "I don't understand the time"),
        ("every 0m", "I don't understand the time"),
        ("every day 25:00", "I don't understand the time"),
        ("every 10s", "once a minute"),
        ("every monday", "At what time?"),
        ("every day", "`every day 9:00`"),
        ("today 5:00", "is in the past"),
        ("2020-01-01 10:00", "is in the past"),
        ("2026-12-24", "no time of day"),
        ("0 0 31 2 *", "never occurs"),
        ("61 * * * *", "0 to 59"),
        ("0 0 * * fri-mon", "runs backwards"),
        ("0 0 L * *", "is not a valid day"),
        ("*/0 * * * *", "1 or more"),
        ("@never", "@daily"),
        ("every month on the 32nd at 9:00", "is not a valid day"),
    ],
)
def test_invalid_time_is_refused_with_an_explanation(text: str, part: str) -> None:
    with pytest.raises(Refused) as refused:
        read_schedule(text, now=NOW, zone=BERLIN)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("text", "when", "rest"),
    [
        ("every monday 9:00 water the 3 plants", "every monday 9:00", "water the 3 plants"),
        ("30m: call mum", "30m", "call mum"),
        ("0 9 * * 1 do it", "0 9 * * 1", "do it"),
        ("tomorrow 9:00 first line\n  second line", "tomorrow 9:00", "first line\n  second line"),
        ("every 2h", "every 2h", ""),
    ],
)
def test_a_leading_time_is_separated_from_the_rest(text: str, when: str, rest: str) -> None:
    assert split_schedule(text, now=NOW, zone=BERLIN) == (when, rest)


def test_text_without_a_time_is_refused() -> None:
    with pytest.raises(Refused, match="Start with a time"):
        split_schedule("water the plants", now=NOW, zone=BERLIN)


def test_unknown_time_zone_is_refused() -> None:
    assert find_zone(" Europe/Berlin ").key == BERLIN
    for name in ("Europe/Nowhere", "../etc/passwd", ""):
        with pytest.raises(Refused, match="Unknown time zone"):
            find_zone(name)
