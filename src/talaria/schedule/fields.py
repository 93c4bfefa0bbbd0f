"""The five fields of a cron expression: which minutes, hours, days, months and weekdays they mean."""

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


class _Kind(Struct, frozen=True):
    """One of the five: what it is called, the least and the most that may stand there, and names for numbers."""

    name: str
    least: int
    most: int
    names: Mapping[str, int] = {}


_KINDS = (
    _Kind("minute", 0, 59),
    _Kind("hour", 0, 23),
    _Kind("day", 1, 31),
    _Kind("month", 1, 12, _MONTHS),
    _Kind("weekday", 0, _SUNDAY_AGAIN, _WEEKDAYS),
)


class Fields(Struct, frozen=True, kw_only=True):
    """What an expression means.

    ``weekdays`` are numbered from Monday, which is 0. Where both days and weekdays are given, ``either`` is enough.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @property
    def in_every_hour(self) -> bool:
        """Whether it goes by minutes alone, whatever the hour."""
        return len(self.hours) == _HOURS

    @property
    def times(self) -> tuple[time, ...]:
        """The times of a day on which something is due, in order."""
        return tuple(time(hour, minute) for hour in self.hours for minute in self.minutes)

    def fits(self, day: date) -> bool:
        """Tell whether something is due on a day."""
        if day.month not in self.months:
            return False
        fitting = (day.day in self.days, day.weekday() in self.weekdays)
        return any(fitting) if self.either else all(fitting)


@lru_cache(maxsize=256)
def read_fields(expression: str) -> Fields:
    """Return what an expression of five fields or a shorthand such as ``@daily`` means; raises `Refused`."""
    text = expression.strip().lower()
    if text.startswith("@") and text not in _SHORTHANDS:
        raise Refused(f"`{expression}` is not known: there are {', '.join(_SHORTHANDS)}.")
    words = _SHORTHANDS.get(text, text).split()
    if len(words) != len(_KINDS):
        raise Refused(f"`{expression}` has {len(words)} fields, not 5: minute, hour, day, month, weekday.")
    minutes, hours, days, months, weekdays = (_numbers(word, kind) for word, kind in zip(words, _KINDS, strict=True))
    return Fields(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset((number - 1) % 7 for number in weekdays),
        either=not words[2].startswith("*") and not words[4].startswith("*"),
    )


def _numbers(word: str, kind: _Kind) -> frozenset[int]:
    return frozenset(number for part in word.split(",") for number in _range(part, kind))


def _range(part: str, kind: _Kind) -> Sequence[int]:
    found = _PART.fullmatch(part)
    if found is None:
        raise Refused(f"`{part}` is no {kind.name}: write a number, a range such as 1-5, * or */2.")
    step = int(found["step"] or 1)
    if not step:
        raise Refused(f"`{part}`: a step has to be 1 or more.")
    if found["first"] is None:
        first, last = kind.least, kind.most if kind.name != "weekday" else kind.most - 1
    else:
        first = _number(found["first"], kind)
        last = _number(found["last"], kind) if found["last"] else kind.most if found["step"] else first
    if kind.name == "weekday" and last == 0 < first:
        last = _SUNDAY_AGAIN
    if last < first:
        raise Refused(f"`{part}` runs backwards: begin a range of {kind.name}s with the smaller one.")
    return range(first, last + 1, step)


def _number(word: str, kind: _Kind) -> int:
    number = kind.names.get(word[:3], -1) if word.isalpha() else int(word) if word.isdecimal() else -1
    if not kind.least <= number <= kind.most:
        raise Refused(f"`{word}` is no {kind.name}: those are {kind.least} to {kind.most}{_or_names(kind)}.")
    return number


def _or_names(kind: _Kind) -> str:
    names = list(kind.names)
    return f", or {names[0]} to {names[-1]}" if names else ""
