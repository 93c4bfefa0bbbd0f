"""One open transaction as the tables see it, whichever engine runs it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from talaria.core.ids import WorkerId

Value = str | int | float | None
Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Sql(Protocol):
    """Runs statements with ``?`` for their values.

    ``now`` is the time of the transaction in microseconds, ``worker`` the owner of leases taken in it. ``locked``
    and ``skip_locked`` end a ``SELECT`` whose rows must not change, or must not be somebody else's, until
    the transaction ends; an engine with one writer at a time needs neither.
    """

    now: int
    worker: WorkerId
    locked: str
    skip_locked: str

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        """Run a statement whose result does not matter."""

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return how many rows it changed."""

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a result, or ``None``."""

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return every row of a result."""


def to_stamp(moment: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def from_stamp(stamp: int) -> datetime:
    """Return the moment of a count of microseconds since 1970."""
    return _EPOCH + stamp * _MICROSECOND


def to_span(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // _MICROSECOND


def maybe_stamp(moment: datetime | None) -> int | None:
    """Return `to_stamp` of a moment, if there is one."""
    return None if moment is None else to_stamp(moment)


def maybe_moment(stamp: int | None) -> datetime | None:
    """Return `from_stamp` of a stamp, if there is one."""
    return None if stamp is None else from_stamp(stamp)
