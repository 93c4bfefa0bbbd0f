"""Times as people write and read them: `7d` and `2026-03-01` on the way in, "2 h ago" on the way out."""

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module

_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36_500)
_YEARS = range(1970, 9999)
_SPAN = re.compile(r"(\d{1,9})\s*(min|h|d|w|)", re.ASCII)


def parse_span(text: str) -> timedelta:
    """Return how long ``30min``, ``12h``, ``7d``, ``2w`` or a bare number of days is."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ArgumentTypeError(f"`{text}` is no length of time: write it like 30min, 12h, 7d or 2w")
    if int(found[1]) > _LONGEST / _UNITS[found[2]]:
        raise ArgumentTypeError(f"`{text}` is too long: {_LONGEST.days} days are the most")
    return int(found[1]) * _UNITS[found[2]]


def parse_when(text: str) -> timedelta | datetime:
    """Return how long ago something was, or the date or time that the text names."""
    if _SPAN.fullmatch(text.strip()):
        return parse_span(text)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ArgumentTypeError(f"`{text}` is no time: write it like 7d, 2026-03-01 or 2026-03-01T14:30") from error
    if when.year not in _YEARS:
        raise ArgumentTypeError(f"`{text}` is too long ago, or too far off")
    return when


def moment(when: timedelta | datetime | None, now: datetime, zone: tzinfo | None) -> datetime | None:
    """Return the moment that is meant; a time without a zone is one of ``zone``, or else of the system's."""
    if when is None:
        return None
    if isinstance(when, timedelta):
        return now - when
    if when.tzinfo is None and zone is not None:
        when = when.replace(tzinfo=zone)
    return when.astimezone(UTC)


def find_zone(name: str) -> tzinfo | None:
    """Return the zone of the setting ``cli.time_zone``; ``None`` stands for that of the system."""
    # Few people name a zone; the others do not wait for zoneinfo at each start.
    zone: tzinfo | None = import_module("zoneinfo").ZoneInfo(name) if name else None
    return zone


def clock_time(at: datetime, zone: tzinfo | None) -> str:
    """Return a moment to the minute, in this zone."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago a moment was, in one unit; after two months the day."""
    minutes = int((now - at).total_seconds()) // 60
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min ago"
    if minutes < 24 * 60:
        return f"{minutes // 60} h ago"
    days = minutes // (24 * 60)
    if days < 60:
        return f"{days} days ago" if days > 1 else "1 day ago"
    return f"{at:%Y-%m-%d}"
