"""One thing that is wrong with the settings, as a sentence."""

from collections.abc import Iterable
from importlib import import_module

from msgspec import Struct

_SIMILAR = 0.75  # of 1: `levl` is like `level` (0.89), `here` is not like `theme` (0.67)
_MOST_LISTED = 30


class Fault(Struct, frozen=True, kw_only=True):
    """What is wrong and where; ``str(fault)`` is the sentence with its place in front."""

    problem: str
    file: str = ""
    line: int | None = None
    key: str = ""
    expected: str = ""
    found: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.problem}" if place else self.problem


class Place(Struct, frozen=True):
    """Where a value was given: a file and its line, or an environment variable; nothing for a value just typed."""

    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def unknown(what: str, name: str, known: Iterable[str], place: Place | None = None) -> Fault:
    """``name`` is no ``what`` of ours; the sentence names the nearest one, or what there is."""
    place, known = place or Place(), list(known)
    close = nearest(name, known)
    help_ = f"; the nearest is `{close}`" if close else _listed(what, known)
    problem = f"`{name}` is not a known {what}{help_}."
    return Fault(problem=problem, file=place.file, line=place.line, key=name, nearest=close)


def wrong_value(key: str, expected: str, found: str, place: Place | None = None) -> Fault:
    """The value of ``key`` has the wrong type or lies outside its limits."""
    place = place or Place()
    problem = f"`{key}` must be {expected}, but is {found}."
    return Fault(problem=problem, file=place.file, line=place.line, key=key, expected=expected, found=found)


def missing_key(key: str, expected: str, place: Place) -> Fault:
    """A key without a default was not given."""
    problem = f"`{key}` is missing; it must be {expected}."
    return Fault(problem=problem, file=place.file, line=place.line, key=key, expected=expected)


def nearest(name: str, known: Iterable[str], *, similarity: float = _SIMILAR) -> str:
    """The name most like ``name``, by the whole of it or by its last part; empty if none is close."""
    known = list(known)
    by_last_part = {one.rpartition(".")[2]: one for one in reversed(known)}
    last = name.rpartition(".")[2]
    if last in by_last_part:
        return by_last_part[last]
    # Only a mistake needs difflib: whoever makes none does not wait for it.
    close = import_module("difflib").get_close_matches
    whole = close(name, known, n=1, cutoff=similarity)
    part = close(last, by_last_part, n=1, cutoff=similarity)
    return whole[0] if whole else by_last_part[part[0]] if part else ""


def _listed(what: str, known: list[str]) -> str:
    """Return a clause with all that is known, or where to find it if that is much."""
    if len(known) <= _MOST_LISTED:
        return "; known are " + ", ".join(f"`{one}`" for one in known) if known else ""
    return "; `talaria config show` lists them" if what == "key" else ""
