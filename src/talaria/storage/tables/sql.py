"""SQL interface of an open transaction, with conversions of times, prefixes and encoded columns."""

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
_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000  # code points between them are not valid text
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Sql(Protocol):
    """Engine-independent SQL statements with ``?`` placeholders, within one transaction.

    ``now`` is the time of the transaction in microseconds since 1970; ``worker`` owns leases acquired in it. The suffix
    ``locked`` makes a ``SELECT`` lock its rows until the transaction ends; ``skip_locked`` also skips rows locked by
    others. Both are empty for an engine with a single writer. ``bytewise`` after a text expression compares it by its
    bytes, independent of the locale.
    """

    now: int
    worker: WorkerId
    locked: str
    skip_locked: str
    bytewise: str

    def run(self, statement: str, values: Sequence[Value] = ()) -> None:
        """Run a statement and ignore its result."""

    def run_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""

    def count(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return the number of changed rows."""

    def row(self, statement: str, values: Sequence[Value] = ()) -> Row | None:
        """Return the first row of a result, or ``None``."""

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return all rows of a result."""


def build_prefix_condition(sql: Sql, column: str, prefix: str) -> tuple[str, tuple[str, ...]]:
    """Return a condition that a column starts with ``prefix``, and its values; can use an index."""
    column += sql.bytewise
    end = _find_prefix_end(prefix)
    return (f"{column} >= ? AND {column} < ?", (prefix, end)) if end else (f"{column} >= ?", (prefix,))


def _find_prefix_end(prefix: str) -> str:
    """Return the smallest text, by bytes, above all texts with this prefix; empty if there is none."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return ""
    last = ord(stem[-1]) + 1
    return stem[:-1] + chr(_AFTER_SURROGATES if last == _SURROGATES else last)


def decode_stored(decode: Callable[[str], T], text: str) -> T:
    """Decode a column; raises `StoreCorrupt` if it cannot be decoded."""
    try:
        return decode(text)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(DAMAGED_ROW) from error


def to_stamp(moment: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def from_stamp(stamp: int) -> datetime:
    """Return the UTC time for microseconds since 1970; raises `StoreCorrupt` if out of range."""
    try:
        return _EPOCH + stamp * _MICROSECOND
    except OverflowError as error:
        raise StoreCorrupt(DAMAGED_ROW) from error


def to_span(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return duration // _MICROSECOND


def to_optional_stamp(moment: datetime | None) -> int | None:
    """Return `to_stamp` of a time, or ``None``."""
    return None if moment is None else to_stamp(moment)


def from_optional_stamp(stamp: int | None) -> datetime | None:
    """Return `from_stamp` of a stamp, or ``None``."""
    return None if stamp is None else from_stamp(stamp)
