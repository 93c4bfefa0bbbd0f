"""Cron expressions: parse the five fields."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from functools import lru_cache

from msgspec import Struct

from talaria.core.errors import Refused

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
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
