"""One open transaction as the tables see it, whichever engine runs it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from talaria.core.errors import StoreCorrupt
from talaria.core.ids import WorkerId

DAMAGED_ROW = "A row of the store is damaged. Run `talaria doctor --fix`: it recovers what can be read."
T = TypeVar("T")
Value = str | int | float | None
Row = tuple[Any, ...]

_LAST = "\U0010ffff"
_SURROGATES, _BEHIND_SURROGATES = 0xD800, 0xE000  # what lies between them is no text
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Sql(Protocol):
    """Runs statements with ``?`` for their values.

    ``now`` is the time of the transaction in microseconds, ``worker`` the owner of leases taken in it. ``locked``
    and ``skip_locked`` end a ``SELECT`` whose rows must not change, or must not be somebody else's, until
    the transaction ends; an engine with one writer at a time needs neither. ``bytewise`` behind a text lets it be
    compared by its bytes, whatever language the engine speaks.
    """

    now: int
    worker: WorkerId
    locked: str
    skip_locked: str
    bytewise: str

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


def begins(sql: Sql, column: str, prefix: str) -> tuple[str, tuple[str, ...]]:
    """Return the condition that a text begins so, and its values; an index on the column serves it."""
    column += sql.bytewise
    end = _behind(prefix)
    return (f"{column} >= ? AND {column} < ?", (prefix, end)) if end else (f"{column} >= ?", (prefix,))


def _behind(prefix: str) -> str:
    """Return the first text that stands behind all that begin so, by their bytes; empty where there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return ""
    last = ord(kept[-1]) + 1
    return kept[:-1] + chr(_BEHIND_SURROGATES if last == _SURROGATES else last)


def decode_stored(decode: Callable[[str], T], text: str) -> T:
    """Return the value of an encoded column; raises `StoreCorrupt` for one that cannot be decoded."""
    try:
        return decode(text)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(DAMAGED_ROW) from error


def to_stamp(moment: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def from_stamp(stamp: int) -> datetime:
    """Return the moment of a count of microseconds since 1970; raises `StoreCorrupt` for one beyond all calendars."""
    try:
        return _EPOCH + stamp * _MICROSECOND
    except OverflowError as error:
        raise StoreCorrupt(DAMAGED_ROW) from error


def to_span(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // _MICROSECOND


def maybe_stamp(moment: datetime | None) -> int | None:
    """Return `to_stamp` of a moment, if there is one."""
    return None if moment is None else to_stamp(moment)


def maybe_moment(stamp: int | None) -> datetime | None:
    """Return `from_stamp` of a stamp, if there is one."""
    return None if stamp is None else from_stamp(stamp)
