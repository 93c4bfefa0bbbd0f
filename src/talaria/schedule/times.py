"""When something is due: pure functions of a schedule and a moment, right about daylight saving."""

from bisect import bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from talaria.core.errors import Refused
from talaria.schedule.fields import Fields, read_fields

_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_FAR = 9 * 366  # days: 29 February comes after eight years at the latest
_LOOKS_BACK = (timedelta(minutes=5), timedelta(hours=2), _DAY, 32 * _DAY, 367 * _DAY, _FAR * _DAY)


class Once(Struct, frozen=True, tag="once"):
    """At one moment, and then never again."""

    at: datetime


class Every(Struct, frozen=True, tag="every"):
    """Again and again after so many seconds, counted from ``since`` on: clocks that are changed do not matter."""

    seconds: int
    since: datetime


class Calendar(Struct, frozen=True, tag="calendar"):
    """When the clocks of a zone say what a cron expression says.

    A time that the clocks skip counts at the first moment behind the gap; one that they show twice counts once, the
    first time. An expression for every hour goes by minutes alone: it is due in each hour that there is, and in none
    that there is not.
    """

    expression: str
    zone: str


Schedule = Once | Every | Calendar

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Schedule] = msgspec.json.Decoder(Schedule)


def write_schedule(schedule: Schedule) -> str:
    """Return a schedule as it is kept."""
    return _encode(schedule).decode()


def parse_schedule(text: str) -> Schedule:
    """Return a schedule that was kept."""
    return _decoder.decode(text)


def next_after(schedule: Schedule, moment: datetime) -> datetime | None:
    """Return the first time behind a moment at which something is due, in UTC; ``None`` when there is none."""
    match schedule:
        case Once(at):
            return at.astimezone(UTC) if at > moment else None
        case Every(seconds, since):
            period = timedelta(seconds=seconds)
            return since.astimezone(UTC) + max(1, (moment - since) // period + 1) * period
        case Calendar(expression, zone):
            fields, place = read_fields(expression), find_zone(zone)
            find = _next_by_minutes if fields.in_every_hour else _next_by_times
            return find(fields, place, moment.astimezone(UTC))


def last_until(schedule: Schedule, moment: datetime) -> datetime | None:
    """Return the last time up to a moment at which something was due; ``None`` when there was none for years."""
    for back in _LOOKS_BACK:
        found = next_after(schedule, moment - back)
        if found is None or found > moment:
            continue
        while (later := next_after(schedule, found)) is not None and later <= moment:
            found = later
        return found
    return None


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, or raise `Refused` where this machine knows none such."""
    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError):
        raise Refused(f"`{name}` is no time zone here: write such as Europe/Berlin or UTC.") from None


def moment_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when the clocks of a zone first show a time, in UTC; where they skip it, the first moment behind."""
    late = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if late.astimezone(zone).replace(tzinfo=None) == wall:
        return late
    early = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    before = early.astimezone(zone).utcoffset()
    # The clocks are changed between the two, at a full second.
    seconds = range(int((late - early).total_seconds()))
    return early + timedelta(seconds=bisect_right(seconds, 0, key=lambda at: _changed(early, at, zone, before)))


def _changed(early: datetime, seconds: int, zone: ZoneInfo, before: timedelta | None) -> bool:
    return (early + timedelta(seconds=seconds)).astimezone(zone).utcoffset() != before


def _next_by_times(fields: Fields, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Go through the days; what was due on the day before may count as late as today."""
    times = fields.times
    day = moment.astimezone(zone).date() - _DAY
    for _ in range(_FAR):
        if fields.fits(day):
            at = partial(_at, day, zone)
            place = bisect_right(times, moment, key=at)
            if place < len(times):
                return at(times[place])
        day += _DAY
    return None


def _at(day: date, zone: ZoneInfo, of_day: time) -> datetime:
    return moment_of(datetime.combine(day, of_day), zone)


def _next_by_minutes(fields: Fields, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Go forward in time itself, from minute to minute where the clocks are changed."""
    found = moment.replace(second=0, microsecond=0) + _MINUTE
    end = found + _FAR * _DAY
    while found < end:
        here = found.astimezone(zone)
        if not fields.fits(here.date()):
            found = max(_at(here.date() + _DAY, zone, time()), found + _MINUTE)
            continue
        if here.minute in fields.minutes:
            return found
        ahead = found + _MINUTE * ((_next_of(fields.minutes, here.minute) - here.minute) % 60)
        is_steady = ahead.astimezone(zone).utcoffset() == here.utcoffset()
        found = ahead if is_steady else found + _MINUTE
    return None


def _next_of(minutes: tuple[int, ...], minute: int) -> int:
    return next((one for one in minutes if one > minute), minutes[0])
