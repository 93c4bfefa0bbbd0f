"""What a check found: how bad it is, how to repair it, and whether that is safe to do unasked."""

from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from talaria.cli.services import Services

State = Literal["ok", "warning", "fault"]


class Finding(Struct, frozen=True, kw_only=True):
    """One line of the report; ``mend`` does the repair and says in a sentence what it did."""

    state: State
    found: str
    repair: str = ""
    mend: Callable[[], str] | None = None


class Check(Struct, frozen=True):
    """One thing to look at, under the name that it has in the report."""

    name: str
    look: Callable[[Services], Iterator[Finding]]


def ok(found: str) -> Finding:
    """All is well."""
    return Finding(state="ok", found=found)


def warning(found: str, repair: str = "", mend: Callable[[], str] | None = None) -> Finding:
    """It works, but not as well as it could."""
    return Finding(state="warning", found=found, repair=repair, mend=mend)


def fault(found: str, repair: str = "", mend: Callable[[], str] | None = None) -> Finding:
    """Something does not work."""
    return Finding(state="fault", found=found, repair=repair, mend=mend)
