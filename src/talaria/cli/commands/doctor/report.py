"""Findings of checks: severity, advice, and an optional safe repair."""

from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from talaria.cli.services import Services

State = Literal["ok", "warning", "fault"]


class Finding(Struct, frozen=True, kw_only=True):
    """Line of the report; ``fix`` does the repair and returns a sentence about it."""

    state: State
    found: str
    repair: str = ""
    fix: Callable[[], str] | None = None


class DoctorCheck(Struct, frozen=True):
    """Named check of the report."""

    name: str
    probe: Callable[[Services], Iterator[Finding]]


def ok(found: str) -> Finding:
    """Return a finding without problems."""
    return Finding(state="ok", found=found)


def warning(found: str, repair: str = "", fix: Callable[[], str] | None = None) -> Finding:
    """Return a finding for something that works, but not well."""
    return Finding(state="warning", found=found, repair=repair, fix=fix)


def fault(found: str, repair: str = "", fix: Callable[[], str] | None = None) -> Finding:
    """Return a finding for something that does not work."""
    return Finding(state="fault", found=found, repair=repair, fix=fix)
