"""Times and durations as arguments, for example `7d` and `2026-03-01`."""

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta, tzinfo

_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_MAX_SPAN = timedelta(days=36_500)
_YEARS = range(1970, 9999)
_SPAN = re.compile(r"(\d{1,9})\s*(min|h|d|w|)", re.ASCII)


def parse_span(text: str) -> timedelta:
    """Return the duration of ``30min``, ``12h``, ``7d``, ``2w`` or a number of days."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ArgumentTypeError(f"`{text}` isn't a duration; write it like 30min, 12h, 7d or 2w")
    if int(found[1]) > _MAX_SPAN / _UNITS[found[2]]:
        raise ArgumentTypeError(f"`{text}` is too long; the maximum is {_MAX_SPAN.days} days")
    return int(found[1]) * _UNITS[found[2]]


def parse_when(text: str) -> timedelta | datetime:
    """Return the duration, date or time that the text means."""
    if _SPAN.fullmatch(text.strip()):
        return parse_span(text)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ArgumentTypeError(f"`{text}` isn't a time; write it like 7d, 2026-03-01 or 2026-03-01T14:30") from error
    if when.year not in _YEARS:
        raise ArgumentTypeError(f"`{text}` is too far in the past or future")
    return when


def resolve_time(when: timedelta | datetime | None, now: datetime, zone: tzinfo | None) -> datetime | None:
    """Return the time that is meant; without a zone it is in ``zone``, or in the system's."""
    if when is None:
        return None
    if isinstance(when, timedelta):
        return now - when
    if when.tzinfo is None and zone is not None:
        when = when.replace(tzinfo=zone)
    return when.astimezone(UTC)
