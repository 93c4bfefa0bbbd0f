"""Reset of sessions after a pause or at an hour of the day."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.gateway.session_reset import ResetPolicy, build_reset_policy, find_reset_reason, format_reset_notice
from talaria.settings.sections.chats import ChatNetworkSettings
from talaria.testing.clock import NOON

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
IDLE, DAILY = ResetPolicy(idle=timedelta(hours=2)), ResetPolicy(hour=4)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_reset_policy_is_built_from_the_settings_of_the_network() -> None:
    day = timedelta(days=1)
    assert build_reset_policy(ChatNetworkSettings()) == ResetPolicy()
    assert build_reset_policy(ChatNetworkSettings(reset="idle")) == ResetPolicy(idle=day)
    assert build_reset_policy(ChatNetworkSettings(reset="daily", reset_hour=6)) == ResetPolicy(hour=6)
    assert build_reset_policy(ChatNetworkSettings(reset="both", reset_idle_minutes=5)) == ResetPolicy(
        timedelta(minutes=5), 4
    )


def test_policy_without_limits_never_resets() -> None:
    assert find_reset_reason(ResetPolicy(), NOON - timedelta(days=9999), NOON, UTC) is None


def test_session_is_reset_after_the_full_idle_time() -> None:
    assert find_reset_reason(IDLE, NOON - timedelta(hours=2), NOON, UTC) == "idle"
    assert find_reset_reason(IDLE, NOON - timedelta(hours=2) + timedelta(seconds=1), NOON, UTC) is None
    assert find_reset_reason(IDLE, NOON + timedelta(hours=9), NOON, UTC) is None


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        ("2026-01-02 02:59", "2026-01-02 03:00", True),
        ("2026-01-02 03:00", "2026-01-02 03:00", False),
        ("2026-01-02 03:00", "2026-01-03 02:59", False),
        ("2026-01-01 23:00", "2026-01-02 02:59", False),
        ("2026-01-01 02:00", "2026-01-02 02:59", True),
    ],
)
def test_daily_reset_hour_is_in_the_given_time_zone(last: str, now: str, due: bool) -> None:
    assert (find_reset_reason(DAILY, at(last), at(now), BERLIN) == "daily") is due


def test_daily_reset_happens_at_another_moment_in_another_time_zone() -> None:
    last, now = at("2026-01-02 02:59"), at("2026-01-02 03:00")
    assert find_reset_reason(DAILY, last, now, NEW_YORK) is None
    assert find_reset_reason(DAILY, at("2026-01-02 08:59"), at("2026-01-02 09:00"), NEW_YORK) == "daily"


def test_reset_hour_skipped_by_summer_time_is_due_at_the_change() -> None:
    two = ResetPolicy(hour=2)
    last = at("2026-03-29 00:30")
    assert find_reset_reason(two, last, at("2026-03-29 00:59"), BERLIN) is None
    assert find_reset_reason(two, last, at("2026-03-29 01:00"), BERLIN) == "daily"


def test_reset_hour_repeated_by_winter_time_counts_once() -> None:
    two = ResetPolicy(hour=2)
    assert find_reset_reason(two, at("2026-10-24 23:59"), at("2026-10-25 00:00"), BERLIN) == "daily"
    assert find_reset_reason(two, at("2026-10-25 00:10"), at("2026-10-25 01:30"), BERLIN) is None


def test_reset_hour_uses_the_system_zone_without_a_setting() -> None:
    now = NOON.astimezone()
    hour = ResetPolicy(hour=now.hour)
    assert find_reset_reason(hour, NOON - timedelta(hours=1, seconds=1), NOON, None) == "daily"
    assert find_reset_reason(hour, NOON, NOON, None) is None


_MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(_MOMENTS, st.integers(0, 23), st.sampled_from([BERLIN, NEW_YORK, UTC]))
def test_daily_reset_is_due_within_every_25_hours(now: datetime, hour: int, zone: ZoneInfo) -> None:
    policy = ResetPolicy(hour=hour)
    assert find_reset_reason(policy, now, now, zone) is None
    assert find_reset_reason(policy, now - timedelta(hours=25, seconds=1), now, zone) == "daily"


def test_reset_notice_names_the_reason_and_resume() -> None:
    assert format_reset_notice("idle", IDLE) == (
        "There was no message here for 2 hours, so this is a new conversation. `/resume` returns to the previous one."
    )
    assert format_reset_notice("idle", ResetPolicy(timedelta(minutes=90))).startswith(
        "There was no message here for 90 minutes,"
    )
    assert format_reset_notice("idle", ResetPolicy(timedelta(days=1))).startswith(
        "There was no message here for 1 day,"
    )
    assert format_reset_notice("daily", DAILY).startswith("Conversations here start over every day at 4:00, so")
