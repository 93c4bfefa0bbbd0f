"""Faults of settings as sentences, and the errors that report them."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import TalariaError

_MIN_SIMILARITY = 0.75  # of 1: `levl` is like `level` (0.89), `here` is not like `theme` (0.67)
_MOST_LISTED = 40


class Fault(Struct, frozen=True, kw_only=True):
    """Problem with its location; ``str(fault)`` is the sentence with the location first."""

    problem: str
    file: str = ""
    line: int | None = None
    key: str = ""
    expected: str = ""
    found: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        location = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{location}: {self.problem}" if location else self.problem


class SourceLocation(Struct, frozen=True):
    """Origin of a value: file and line, or environment variable; empty for typed values."""

    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def build_unknown_fault(what: str, name: str, known: Iterable[str], location: SourceLocation | None = None) -> Fault:
    """Return the fault of an unknown ``name``, with the nearest known one or all of them."""
    location, known = location or SourceLocation(), list(known)
    close = find_nearest(name, known)
    help_ = f"; the nearest is `{close}`" if close else _list_known(what, known)
    problem = f"`{name}` is not a known {what}{help_}."
    return Fault(problem=problem, file=location.file, line=location.line, key=name, nearest=close)


def build_wrong_value_fault(key: str, expected: str, found: str, location: SourceLocation | None = None) -> Fault:
    """Return the fault of a value with the wrong type or outside its limits."""
    location = location or SourceLocation()
    problem = f"`{key}` must be {expected}, but is {found}."
    return Fault(problem=problem, file=location.file, line=location.line, key=key, expected=expected, found=found)


def build_missing_key_fault(key: str, expected: str, location: SourceLocation) -> Fault:
    """Return the fault of a missing required key."""
    problem = f"`{key}` is missing; it must be {expected}."
    return Fault(problem=problem, file=location.file, line=location.line, key=key, expected=expected)


def find_nearest(name: str, known: Iterable[str], *, similarity: float = _MIN_SIMILARITY) -> str:
    """Return the most similar name, compared as a whole or by its last part; empty if none is close."""
    known = list(known)
    by_last_part = {one.rpartition(".")[2]: one for one in reversed(known)}
    last = name.rpartition(".")[2]
    if last in by_last_part:
        return by_last_part[last]
    from difflib import get_close_matches  # noqa: PLC0415 (loaded when a name is misspelled)

    whole = get_close_matches(name, known, n=1, cutoff=similarity)
    part = get_close_matches(last, by_last_part, n=1, cutoff=similarity)
    return whole[0] if whole else by_last_part[part[0]] if part else ""


def _list_known(what: str, known: list[str]) -> str:
    """Return a clause with all known names, or where to find them if there are many."""
    if len(known) <= _MOST_LISTED:
        return "; known are " + ", ".join(f"`{one}`" for one in known) if known else ""
    return "; `talaria config show` lists them" if what == "key" else ""


class SettingsInvalid(TalariaError):
    """Error with all faults of the settings; ``str(error)`` lists them one per line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class ProfileUnusable(TalariaError):
    """Error for an inaccessible file or folder of a profile; ``trouble`` has the reason."""

    def __init__(self, path: Path, failure: str, error: OSError) -> None:
        self.path = path
        self.trouble = f"{failure}: {error.strerror or type(error).__name__}"
        super().__init__(f"{path} {self.trouble}.")
