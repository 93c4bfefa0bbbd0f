"""Schedules as people read them."""

import re
from datetime import UTC, datetime

from talaria.core.errors import Refused
from talaria.schedule.times import Calendar, Every, Once, Schedule, find_zone

_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_AT_A_TIME = re.compile(r"(\d+) (\d+) (\*|\d+) \* (\*|[\d,]+|1-5)")
_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_GROUPS = {"*": "day", "1-5": "weekday", "0,6": "weekend"}


def described(schedule: Schedule) -> str:
    """Return a schedule in words that would be read as the same one, without its zone and its beginning."""
    match schedule:
        case Once():
            return "once"
        case Every(seconds):
            return f"every {_amount(seconds)}"
        case Calendar(expression):
            return _in_words(expression) or expression


def told(at: datetime, zone: str) -> str:
    """Return a moment as the clocks of a zone show it, and which zone that is; UTC where that is not known here."""
    try:
        return f"{at.astimezone(find_zone(zone)):%a %Y-%m-%d %H:%M} {zone}"
    except Refused:
        return f"{at.astimezone(UTC):%a %Y-%m-%d %H:%M} UTC"


def _amount(seconds: int) -> str:
    parts = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _in_words(expression: str) -> str:
    found = _AT_A_TIME.fullmatch(expression)
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
