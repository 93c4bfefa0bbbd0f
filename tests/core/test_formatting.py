from datetime import UTC, datetime, timedelta

import pytest

from talaria.core.formatting import find_zone, format_age, format_money, format_time, pluralize

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (timedelta(seconds=-30), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=60), "1 min ago"),
        (timedelta(minutes=59, seconds=59), "59 min ago"),
        (timedelta(hours=2, minutes=59), "2 h ago"),
        (timedelta(hours=24), "1 day ago"),
        (timedelta(days=59), "59 days ago"),
        (timedelta(days=60), "2026-05-02"),
    ],
)
def test_elapsed_time_is_shown_in_one_unit(before: timedelta, expected: str) -> None:
    assert format_age(NOW - before, NOW) == expected


def test_time_is_formatted_in_the_given_zone() -> None:
    assert format_time(NOW, find_zone("Asia/Tokyo")) == "2026-07-01 21:00"
    assert find_zone("") is None


def test_small_amounts_of_money_have_more_digits() -> None:
    assert [format_money(amount) for amount in (0, 1_230_000, 1_200)] == ["", "$1.23", "$0.0012"]


def test_noun_is_pluralized_by_its_number() -> None:
    assert [pluralize(number, "message") for number in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]
