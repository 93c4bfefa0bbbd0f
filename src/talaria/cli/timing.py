"""Times as people write them: `7d` and `2026-03-01`."""

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
