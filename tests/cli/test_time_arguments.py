from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta, timezone

import pytest

from talaria.cli.session_lookup import parse_span, parse_when, resolve_time

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30min", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("90", timedelta(days=90)),
        (" 2 w ", timedelta(weeks=2)),
        ("0d", timedelta()),
    ],
)
def test_time_span_has_a_unit_or_is_in_days(text: str, span: timedelta) -> None:
    assert parse_span(text) == span


@pytest.mark.parametrize("text", ["", "d", "3m", "7 days ago", "-7d", "1.5d", "٣d", "36501d", "999999999w", "9" * 99])
def test_invalid_time_spans_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"write it like|the maximum is"):
        parse_span(text)


def test_time_is_a_span_before_now_or_a_date() -> None:
    assert resolve_time(parse_when("7d"), NOW, None) == datetime(2026, 6, 24, 12, tzinfo=UTC)
    assert resolve_time(parse_when("2026-03-01T14:30+02:00"), NOW, None) == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert resolve_time(None, NOW, None) is None


def test_date_starts_at_midnight_in_the_zone_of_the_settings() -> None:
    zone = timezone(timedelta(hours=9))
    assert resolve_time(parse_when("2026-03-01"), NOW, zone) == datetime(2026, 2, 28, 15, tzinfo=UTC)


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "0001-01-01", "9999-12-31T23:59-14:00", "1969-12-31"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse_when(text)
