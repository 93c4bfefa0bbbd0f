"""All rows of the store, for backups and for moving between engines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

Cell = str | int | float | None


class Archive(Protocol):
    """The tables as plain rows, the same on every engine; indexes and leases are not included."""

    def tables(self) -> list[str]:
        """Return the names of the tables, in the order in which to load them."""

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, in the order of `rows`."""

    def rows(self, table: str) -> Iterator[Sequence[Cell]]:
        """Yield the rows of a table; only within the transaction."""

    def clear(self) -> None:
        """Remove every row of every table."""

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> int:
        """Add rows and return how many; columns that are not given get their defaults."""

    def finish(self) -> None:
        """Prepare the store for new rows after the last `load`."""
