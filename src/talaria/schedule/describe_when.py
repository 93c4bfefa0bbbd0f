"""Describe schedules for people."""

import re
from datetime import UTC, datetime

from talaria.core.errors import Refused
from talaria.schedule.recurrence import Calendar, Every, Once, Schedule, find_zone

_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SIMPLE_CRON = re.compile(r"(\d+) (\d+) (\*|\d+) \* (\*|[\d,]+|1-5)")
_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_GROUPS = {"*": "day", "1-5": "weekday", "0,6": "weekend"}


def describe_schedule(schedule: Schedule) -> str:
    """Return a schedule as text that parses to the same one, without its zone and start."""
    match schedule:
        case Once():
            return "once"
        case Every(seconds):
            return f"every {_format_interval(seconds)}"
        case Calendar(expression):
            return _describe_expression(expression) or expression


def format_moment(at: datetime, zone: str) -> str:
    """Return a time in a zone, with the zone's name; UTC if the zone is unknown here."""
    try:
        return f"{at.astimezone(find_zone(zone)):%a %Y-%m-%d %H:%M} {zone}"
    except Refused:
        return f"{at.astimezone(UTC):%a %Y-%m-%d %H:%M} UTC"


def _format_interval(seconds: int) -> str:
    parts = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _describe_expression(expression: str) -> str:
    found = _SIMPLE_CRON.fullmatch(expression)
    if found is None:
        return ""
    minute, hour, day, weekdays = found.groups()
    at = f"{int(hour)}:{int(minute):02}"
    if day != "*":
        return f"every month on day {day} at {at}" if weekdays == "*" else ""
    if weekdays in _GROUPS:
        return f"every {_GROUPS[weekdays]} {at}"
    numbers = [int(one) for one in weekdays.split(",") if one]
    return f"every {', '.join(_NAMES[one] for one in numbers)} {at}" if max(numbers) < len(_NAMES) else ""
