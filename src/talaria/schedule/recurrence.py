"""Due times of schedules: next and last, in time zones, and their description for people."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from msgspec import Struct

from talaria.core.errors import Refused
from talaria.core.formatting import load_zone
from talaria.schedule.cron_expression import CronFields, read_fields

_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_MAX_DAYS = 9 * 366  # days: 29 February comes after eight years at the latest
_LOOK_BACK_STEPS = (timedelta(minutes=5), timedelta(hours=2), _DAY, 32 * _DAY, 367 * _DAY, _MAX_DAYS * _DAY)
_encode = msgspec.json.Encoder().encode
_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SIMPLE_CRON = re.compile(r"(\d+) (\d+) (\*|\d+) \* (\*|[\d,]+|1-5)")
_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_GROUPS = {"*": "day", "1-5": "weekday", "0,6": "weekend"}
_LOCAL_LINK, _NAME_FILE = Path("/etc/localtime"), Path("/etc/timezone")
_FOLDER = "zoneinfo/"
_UTC_NAME = "UTC"


class Once(Struct, frozen=True, tag="once"):
    """One time, never repeated."""

    at: datetime


class Every(Struct, frozen=True, tag="every"):
    """Every so many seconds, counted from ``since``, independent of clock changes."""

    seconds: int
    since: datetime


class Calendar(Struct, frozen=True, tag="calendar"):
    """The times at which clocks in a zone match a cron expression.

    A time skipped by the clocks counts at the first moment after the gap; one shown twice counts once, the first time.
    An expression for every hour depends on minutes alone: it is due in each hour that exists.
    """

    expression: str
    zone: str


Schedule = Once | Every | Calendar


_decoder: msgspec.json.Decoder[Schedule] = msgspec.json.Decoder(Schedule)


def write_schedule(schedule: Schedule) -> str:
    """Return an encoded schedule."""
    return _encode(schedule).decode()


def parse_schedule(text: str) -> Schedule:
    """Return a decoded schedule."""
    return _decoder.decode(text)


def next_after(schedule: Schedule, moment: datetime) -> datetime | None:
    """Return the first due time after a moment, in UTC; ``None`` if there is none."""
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


def list_next(schedule: Schedule, moment: datetime, count: int) -> tuple[datetime, ...]:
    """Return up to ``count`` due times after a moment, in UTC."""
    found: list[datetime] = []
    while len(found) < count and (at := next_after(schedule, found[-1] if found else moment)) is not None:
        found.append(at)
    return tuple(found)


def last_until(schedule: Schedule, moment: datetime) -> datetime | None:
    """Return the last due time up to a moment; ``None`` if there was none for years."""
    for back in _LOOK_BACK_STEPS:
        found = next_after(schedule, moment - back)
        if found is None or found > moment:
            continue
        while (later := next_after(schedule, found)) is not None and later <= moment:
            found = later
        return found
    return None


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by name, or raise `Refused` for an unknown one."""
    try:
        return load_zone(name.strip())
    except (KeyError, ValueError, OSError):
        pass
    if not available_timezones():
        raise Refused("This machine knows no time zone but UTC. Install the package `tzdata` to use others.")
    raise Refused(f"Unknown time zone `{name}`. Use a name like Europe/Berlin or UTC.")


def resolve_wall_time(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when clocks in a zone first show a time, in UTC; a skipped time counts after the gap."""
    late = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if late.astimezone(zone).replace(tzinfo=None) == wall:
        return late
    early = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    before = early.astimezone(zone).utcoffset()
    # The clocks change between the two, at a full second.
    seconds = range(int((late - early).total_seconds()))
    return early + timedelta(seconds=bisect_right(seconds, 0, key=lambda at: _offset_changed(early, at, zone, before)))


def _offset_changed(early: datetime, seconds: int, zone: ZoneInfo, before: timedelta | None) -> bool:
    return (early + timedelta(seconds=seconds)).astimezone(zone).utcoffset() != before


def _next_by_times(fields: CronFields, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Go through the days; a time of the previous day may count as late as today."""
    times = fields.times
    day = moment.astimezone(zone).date() - _DAY
    for _ in range(_MAX_DAYS):
        if fields.fits(day):
            at = partial(_resolve_on_day, day, zone)
            place = bisect_right(times, moment, key=at)
            if place < len(times):
                return at(times[place])
        day += _DAY
    return None


def _resolve_on_day(day: date, zone: ZoneInfo, of_day: time) -> datetime:
    return resolve_wall_time(datetime.combine(day, of_day), zone)


def _next_by_minutes(fields: CronFields, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Go forward in absolute time, by minutes where the clocks change."""
    found = moment.replace(second=0, microsecond=0) + _MINUTE
    end = found + _MAX_DAYS * _DAY
    while found < end:
        here = found.astimezone(zone)
        if not fields.fits(here.date()):
            found = max(_resolve_on_day(here.date() + _DAY, zone, time()), found + _MINUTE)
            continue
        if here.minute in fields.minutes:
            return found
        ahead = found + _MINUTE * ((_next_minute(fields.minutes, here.minute) - here.minute) % 60)
        is_steady = ahead.astimezone(zone).utcoffset() == here.utcoffset()
        found = ahead if is_steady else found + _MINUTE
    return None


def _next_minute(minutes: tuple[int, ...], minute: int) -> int:
    return next((one for one in minutes if one > minute), minutes[0])


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


def system_zone(environment: Mapping[str, str]) -> str:
    """Return the zone in the environment, otherwise the system's; UTC if neither is known."""
    candidates = (environment.get("TZ", "").lstrip(":"), _read_link(), _read_name())
    return next((one.rpartition(_FOLDER)[2] for one in candidates if _is_zone(one.rpartition(_FOLDER)[2])), _UTC_NAME)


def _read_link() -> str:
    try:
        return str(_LOCAL_LINK.resolve())
    except OSError:
        return ""


def _read_name() -> str:
    try:
        return _NAME_FILE.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_zone(name: str) -> bool:
    try:
        return bool(name) and load_zone(name).key == name
    except (KeyError, ValueError, OSError):
        return False
