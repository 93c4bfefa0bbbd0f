"""Reading of all intact rows of a damaged SQLite file, and replacement of a lost schema."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from talaria.storage.tables.sql import Row

_MAX_FRUITLESS = 8  # how often a gap without a readable row is split


def iterate_readable_rows(raw: apsw.Connection, table: str, columns: list[str]) -> Iterator[Row | None]:
    """Yield the rows of a table from both ends up to the first damaged page.

    Each row is yielded at least once. A row that cannot be decoded is ``None``, here and in `iterate_numbered_rows`.
    """
    statement = f"SELECT {', '.join(columns)} FROM {table}"
    for direction in ("", " ORDER BY 1 DESC"):
        scan = RowScan(raw, statement + direction)
        yield from scan
        yield from [None] * scan.skipped
        if not scan.damaged:
            return


def is_readable(raw: apsw.Connection, table: str) -> bool:
    """Return whether all rows of a table can be read."""
    scan = RowScan(raw, f"SELECT * FROM {table}")
    deque(scan, maxlen=0)
    return not (scan.damaged or scan.skipped)


def iterate_numbered_rows(
    raw: apsw.Connection, table: str, columns: list[str], key: str, known: Sequence[int] = ()
) -> Iterator[Row | None]:
    """Yield the rows of a table with an integer key, skipping damaged pages.

    Each row is yielded at least once. A range that cannot be read is split and tried again: at one of the ``known``
    keys if there are any in it, otherwise in the middle, until several attempts in a row find nothing. Damaged pages
    can contain keys outside of the range; these do not widen it.
    """
    gaps = deque([(-(1 << 62), 1 << 62, 0)])
    while gaps:
        low, high, fruitless = gaps.popleft()
        last, first = low - 1, high + 1
        statement = (
            f"SELECT {key}, {', '.join(columns)} FROM {table} WHERE {key} BETWEEN {low} AND {high} ORDER BY {key}"
        )
        upwards, downwards = RowScan(raw, statement), RowScan(raw, f"{statement} DESC")
        for row in upwards:
            last = max(last, min(row[0], high))
            yield row[1:]
        yield from [None] * upwards.skipped
        if not upwards.damaged:
            continue
        for row in downwards:
            first = min(first, max(row[0], low))
            yield row[1:]
        yield from [None] * downwards.skipped
        fruitless = fruitless + 1 if (last, first) == (low - 1, high + 1) else 0
        gaps += [(start, end, fruitless) for start, end in _split_gap(last + 1, first - 1, known, fruitless)]


def _split_gap(low: int, high: int, known: Sequence[int], fruitless: int) -> list[tuple[int, int]]:
    if low >= high:
        return []
    inside = known[bisect_left(known, low) : bisect_right(known, high)]
    if inside:
        middle = inside[len(inside) // 2]
        halves = [(low, middle - 1), (middle, middle), (middle + 1, high)]
    elif known or fruitless >= _MAX_FRUITLESS:
        halves = []
    else:
        middle = (low + high) // 2
        halves = [(low, middle), (middle + 1, high)]
    return [(start, end) for start, end in halves if start <= end]


def graft_schema(damaged: Path, template: Path) -> None:
    """Overwrite the schema pages of a damaged file with those of an empty store.

    Files created by the same migrations have the root pages of their tables at the same numbers.
    """
    empty = apsw.Connection(str(template))
    numbers = [int(str(row[0])) for row in empty.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'")]
    size = int(empty.pragma("page_size"))
    empty.close()
    content = template.read_bytes()
    pages = {number: content[(number - 1) * size : number * size] for number in numbers}
    # Offsets of SQLite's file format: 28 is the size in pages, 32 and 36 the list of free pages.
    pages[1] = pages[1][:28] + (damaged.stat().st_size // size).to_bytes(4) + bytes(8) + pages[1][40:]
    with damaged.open("r+b") as file:
        for number, page in pages.items():
            file.seek((number - 1) * size)
            file.write(page)


class RowScan:
    """Iterator over the readable rows of a statement.

    Afterwards ``damaged`` is true if it ended early, and ``skipped`` is the number of rows with invalid UTF-8.
    """

    def __init__(self, raw: apsw.Connection, statement: str) -> None:
        self._raw = raw
        self._statement = statement
        self.damaged = False
        self.skipped = 0

    def __iter__(self) -> Iterator[Row]:
        try:
            cursor = self._raw.execute(self._statement)
            while True:
                try:
                    row = next(cursor, None)
                except UnicodeDecodeError:  # the cursor continues with the next row
                    self.skipped += 1
                    continue
                if row is None:
                    return
                yield row
        except apsw.Error:
            self.damaged = True
