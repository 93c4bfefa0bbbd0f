"""Due times of schedules and cron expressions: next and last, in time zones, and their description for people."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache, partial
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from msgspec import Struct

from talaria.core.errors import Refused
from talaria.core.formatting import load_zone

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_PART = re.compile(r"(\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_SUNDAY_AGAIN = 7
_HOURS, _MINUTES = 24, 60
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_MAX_DAYS = 9 * 366  # days: 29 February comes after eight years at the latest
_LOOK_BACK_STEPS = (timedelta(minutes=5), timedelta(hours=2), _DAY, 32 * _DAY, 367 * _DAY, _MAX_DAYS * _DAY)
_encode = msgspec.json.Encoder().encode
_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SIMPLE_CRON = re.compile(r"(\d+) (\d+) (\*|\d+) \* (\*|[\d,]+|1-5)")
_DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_GROUPS = {"*": "day", "1-5": "weekday", "0,6": "weekend"}
_LOCAL_LINK, _NAME_FILE = Path("/etc/localtime"), Path("/etc/timezone")
_FOLDER = "zoneinfo/"
_UTC_NAME = "UTC"


class _FieldKind(Struct, frozen=True):
    """One of the five fields: its name, its least and greatest value, and names for numbers."""

    name: str
    least: int
    most: int
    names: Mapping[str, int] = {}


_FIELD_KINDS = (
    _FieldKind("minute", 0, 59),
    _FieldKind("hour", 0, 23),
    _FieldKind("day", 1, 31),
    _FieldKind("month", 1, 12, _MONTHS),
    _FieldKind("weekday", 0, _SUNDAY_AGAIN, _WEEKDAYS),
)


class CronFields(Struct, frozen=True, kw_only=True):
    """The parsed fields of an expression.

    ``weekdays`` count from Monday, which is 0. If both days and weekdays are given, ``any_day`` means that one of them
    is enough.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool

    @property
    def in_every_hour(self) -> bool:
        """Return whether it depends on minutes alone, not on the hour."""
        return len(self.hours) == _HOURS

    @property
    def times(self) -> tuple[time, ...]:
        """Return the due times of a day, in order."""
        return tuple(time(hour, minute) for hour in self.hours for minute in self.minutes)

    def fits(self, day: date) -> bool:
        """Return whether something is due on a day."""
        if day.month not in self.months:
            return False
        matching = (day.day in self.days, day.weekday() in self.weekdays)
        return any(matching) if self.any_day else all(matching)


@lru_cache(maxsize=256)
def read_fields(expression: str) -> CronFields:
    """Return the fields of a cron expression or a shorthand like ``@daily``; raises `Refused`."""
    text = expression.strip().lower()
    if text.startswith("@") and text not in _SHORTHANDS:
        raise Refused(f"Unknown shorthand `{expression}`. Use one of {', '.join(_SHORTHANDS)}.")
    fields = _SHORTHANDS.get(text, text).split()
    if len(fields) != len(_FIELD_KINDS):
        raise Refused(f"`{expression}` has {len(fields)} fields instead of 5: minute, hour, day, month, weekday.")
    minutes, hours, days, months, weekdays = (
        _parse_field(word, kind) for word, kind in zip(fields, _FIELD_KINDS, strict=True)
    )
    return CronFields(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset((number - 1) % 7 for number in weekdays),
        any_day=not fields[2].startswith("*") and not fields[4].startswith("*"),
    )


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
            fields, time_zone = read_fields(expression), find_zone(zone)
            find = _find_next_by_minutes if fields.in_every_hour else _find_next_by_times
            return find(fields, time_zone, moment.astimezone(UTC))


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
    return early + timedelta(
        seconds=bisect_right(seconds, 0, key=lambda at: _has_offset_changed(early, at, zone, before))
    )


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


def find_system_zone(environment: Mapping[str, str]) -> str:
    """Return the zone in the environment, otherwise the system's; UTC if neither is known."""
    candidates = (environment.get("TZ", "").lstrip(":"), _read_link(), _read_name())
    return next((one.rpartition(_FOLDER)[2] for one in candidates if _is_zone(one.rpartition(_FOLDER)[2])), _UTC_NAME)


def _parse_field(word: str, kind: _FieldKind) -> frozenset[int]:
    return frozenset(number for part in word.split(",") for number in _parse_range(part, kind))


def _parse_range(part: str, kind: _FieldKind) -> Sequence[int]:
    found = _PART.fullmatch(part)
    if found is None:
        raise Refused(f"`{part}` is not a valid {kind.name}. Use a number, a range like 1-5, * or */2.")
    step = int(found["step"] or 1)
    if not step:
        raise Refused(f"`{part}`: a step must be 1 or more.")
    if found["first"] is None:
        first, last = kind.least, kind.most if kind.name != "weekday" else kind.most - 1
    else:
        first = _parse_number(found["first"], kind)
        last = _parse_number(found["last"], kind) if found["last"] else kind.most if found["step"] else first
    if kind.name == "weekday" and last == 0 < first:
        last = _SUNDAY_AGAIN
    if last < first:
        raise Refused(f"`{part}` runs backwards. Start a range of {kind.name}s with the smaller one.")
    return range(first, last + 1, step)


def _parse_number(word: str, kind: _FieldKind) -> int:
    number = kind.names.get(word[:3], -1) if word.isalpha() else int(word) if word.isdecimal() else -1
    if not kind.least <= number <= kind.most:
        raise Refused(f"`{word}` is not a valid {kind.name}. Use {kind.least} to {kind.most}{_format_names(kind)}.")
    return number


def _format_names(kind: _FieldKind) -> str:
    names = list(kind.names)
    return f", or {names[0]} to {names[-1]}" if names else ""


def _has_offset_changed(early: datetime, seconds: int, zone: ZoneInfo, before: timedelta | None) -> bool:
    return (early + timedelta(seconds=seconds)).astimezone(zone).utcoffset() != before


def _find_next_by_times(fields: CronFields, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Go through the days; a time of the previous day may count as late as today."""
    times = fields.times
    day = moment.astimezone(zone).date() - _DAY
    for _ in range(_MAX_DAYS):
        if fields.fits(day):
            at = partial(_resolve_on_day, day, zone)
            index = bisect_right(times, moment, key=at)
            if index < len(times):
                return at(times[index])
        day += _DAY
    return None


def _resolve_on_day(day: date, zone: ZoneInfo, of_day: time) -> datetime:
    return resolve_wall_time(datetime.combine(day, of_day), zone)


def _find_next_by_minutes(fields: CronFields, zone: ZoneInfo, moment: datetime) -> datetime | None:
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
        ahead = found + _MINUTE * ((_find_next_minute(fields.minutes, here.minute) - here.minute) % 60)
        is_steady = ahead.astimezone(zone).utcoffset() == here.utcoffset()
        found = ahead if is_steady else found + _MINUTE
    return None


def _find_next_minute(minutes: tuple[int, ...], minute: int) -> int:
    return next((one for one in minutes if one > minute), minutes[0])


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
    return f"every {', '.join(_DAY_NAMES[one] for one in numbers)} {at}" if max(numbers) < len(_DAY_NAMES) else ""


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
