"""Parse schedules and times as people and models write them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from talaria.core.errors import Refused
from talaria.schedule.recurrence import (
    Calendar,
    Every,
    Once,
    Schedule,
    find_zone,
    next_after,
    read_fields,
    resolve_wall_time,
)

EXAMPLES = (
    "`every 2h`, `every monday 9:00`, `every day 7:30`, `tomorrow 9:00`, `in 30m`, `2026-12-24 18:00`, `0 9 * * 1-5`"
)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNIT = re.compile(r"(s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hrs|hour|hours|d|day|days|w|week|weeks)")
_AMOUNT = re.compile(rf"(\d+)\s*{_UNIT.pattern}(?![a-z])\s*(?:,|and)?\s*")
_TIME = re.compile(r"(?:at\s+)?(?:(\d{1,2}):(\d{2})\s*(am|pm)?|(\d{1,2})\s*(am|pm)|(noon|midnight))")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\S.*)?", re.IGNORECASE)
_DAY = r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:days?)?"
_DAYS = re.compile(rf"(?:on\s+)?({_DAY}(?:(?:\s*,\s*|\s+and\s+|\s*,\s*and\s+|\s+){_DAY})*)\s+(.+)")
_OF_MONTH = re.compile(r"(?:on\s+)?(?:the\s+)?(?:day\s+)?(\d{1,2})(?:st|nd|rd|th)?\s+(.+)")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_GROUPS = {"day": "*", "weekday": "1-5", "weekend": "0,6"}
_MIN_SECONDS = 60
_MAX_SECONDS = 10 * 366 * 86_400
_FIELDS = 5
_MAX_WORDS = 12  # maximum number of words in a schedule


def read_schedule(text: str, *, now: datetime, zone: str) -> Schedule:
    """Return the schedule for a text at this time, in a zone; raises `Refused` with examples.

    ``30m`` and ``in 30m`` are once, after that time; ``every 30m`` repeats.
    """
    words = " ".join(text.strip().lower().split())
    for read in (_parse_iso, _parse_cron, _parse_repeated, _parse_delay, _parse_day):
        found = read(words, now, find_zone(zone))
        if found is not None:
            return _require_future(found, text, now)
    raise Refused(f"I don't understand the time `{text.strip()}`. Examples: {EXAMPLES}.")


def split_schedule(text: str, *, now: datetime, zone: str) -> tuple[str, str]:
    """Return the longest schedule at the beginning of a text, and the rest."""
    words = text.split()
    for count in range(min(_MAX_WORDS, len(words)), 0, -1):
        when = " ".join(words[:count]).rstrip(":,")
        try:
            read_schedule(when, now=now, zone=zone)
        except Refused:
            continue
        return when, "".join(text.split(None, count)[count:]).rstrip()
    raise Refused(f"Start with a time, for example {EXAMPLES}.")


def read_duration(text: str) -> timedelta | None:
    """Return the duration of ``2h``, ``90 min`` or ``1h 30m``; ``None`` for other text."""
    seconds, position = 0, 0
    while position < len(text):
        found = _AMOUNT.match(text, position)
        if found is None:
            return None
        seconds += int(found[1]) * _UNITS[found[2][0]]
        position = found.end()
    return timedelta(seconds=min(seconds, _MAX_SECONDS)) if seconds else None


def read_time(text: str) -> time | None:
    """Return the time of day of ``9:00``, ``9am`` or ``noon``; ``None`` for other text."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    if found[6]:
        return time(12 if found[6] == "noon" else 0)
    hour, half = int(found[1] or found[4]), found[3] or found[5]
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    minute = int(found[2] or 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None


def _parse_iso(text: str, now: datetime, zone: ZoneInfo) -> Schedule | None:
    if not _ISO.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(text.upper().replace(" ", "T", 1))
    except ValueError:
        return None
    if len(text) <= len("2026-12-24"):
        raise Refused(f"`{text}` has no time of day. Write for example `{text} 9:00`.")
    return Once(resolve_wall_time(at, zone) if at.tzinfo is None else at.astimezone(UTC))


def _parse_cron(text: str, now: datetime, zone: ZoneInfo) -> Schedule | None:
    words = text.removeprefix("cron ").split()
    if text.startswith("@") or (len(words) == _FIELDS and re.match(r"[\d*]", words[0])):
        read_fields(" ".join(words))
        return Calendar(" ".join(words), zone.key)
    return None


def _parse_repeated(text: str, now: datetime, zone: ZoneInfo) -> Schedule | None:
    rest = re.sub(r"^(daily|weekdays|weekends|monthly|hourly)\b", lambda found: _SYNONYMS[found[1]], text)
    if not rest.startswith("every "):
        return None
    rest = rest.removeprefix("every ")
    rest = re.sub(r"^(minute|hour)$", r"1 \1", rest)
    duration = read_duration(rest)
    if duration is not None:
        return _make_interval(duration, now)
    expression = _make_expression(rest)
    return Calendar(expression, zone.key) if expression else None


_SYNONYMS = {
    "daily": "every day",
    "weekdays": "every weekday",
    "weekends": "every weekend",
    "monthly": "every month",
    "hourly": "every hour",
}


def _make_interval(duration: timedelta, now: datetime) -> Schedule:
    if duration.total_seconds() < _MIN_SECONDS:
        raise Refused("At most once a minute: `every 1m`.")
    return Every(int(duration.total_seconds()), now.astimezone(UTC).replace(microsecond=0))


def _make_expression(text: str) -> str | None:
    """Return the cron expression for days and a time."""
    group, _, rest = text.partition(" ")
    if group in _GROUPS:
        return _make_daily(rest, text, lambda at: f"{at.minute} {at.hour} * * {_GROUPS[group]}")
    if group == "month":
        of_month = _OF_MONTH.fullmatch(rest)
        day = of_month[1] if of_month else ""
        return _make_daily(of_month[2], text, lambda at: f"{at.minute} {at.hour} {day} * *") if of_month else None
    found = _DAYS.fullmatch(text) or (_DAYS.fullmatch(f"{text} at") if re.fullmatch(_DAY, text) else None)
    if found is None:
        return None
    days = ",".join(dict.fromkeys(str((_WEEKDAYS.index(day[:3]) + 1) % 7) for day in re.findall(_DAY, found[1])))
    return _make_daily(found[2], text, lambda at: f"{at.minute} {at.hour} * * {days}")


def _make_daily(rest: str, text: str, build: Callable[[time], str]) -> str | None:
    if not rest or rest == "at":
        raise Refused(f"At what time? For example `every {text.removesuffix(' at')} 9:00`.")
    at = read_time(rest)
    return build(at) if at is not None else None


def _parse_delay(text: str, now: datetime, zone: ZoneInfo) -> Schedule | None:
    duration = read_duration(text.removeprefix("in "))
    return Once((now + duration).astimezone(UTC)) if duration is not None else None


def _parse_day(text: str, now: datetime, zone: ZoneInfo) -> Schedule | None:
    """Parse a time of today, tomorrow, a named day, or the next occurrence."""
    today = now.astimezone(zone).date()
    days: tuple[int, ...] = (0, 1)
    day, _, rest = text.removeprefix("on ").removeprefix("next ").partition(" ")
    if day in {"today", "tomorrow"}:
        at, days = read_time(rest), (0,) if day == "today" else (1,)
    elif re.fullmatch(_DAY, day):
        ahead = (_WEEKDAYS.index(day[:3]) - today.weekday()) % 7
        at, days = read_time(rest), (ahead, ahead + 7)
    else:
        at = read_time(text)
    if at is None:
        return None
    moments = [resolve_wall_time(datetime.combine(today + timedelta(days=one), at), zone) for one in days]
    return Once(next((one for one in moments if one > now), moments[-1]))


def _require_future(schedule: Schedule, text: str, now: datetime) -> Schedule:
    if next_after(schedule, now) is None:
        why = "is in the past" if isinstance(schedule, Once) else "never occurs"
        raise Refused(f"`{text.strip()}` {why}. Choose another time.")
    return schedule
