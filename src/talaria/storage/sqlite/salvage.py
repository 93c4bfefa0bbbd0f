"""Read what can be read of a damaged SQLite file."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from talaria.storage.sql import Row

_PATIENCE = 8  # how often a gap without a single readable row is halved


def readable_rows(raw: apsw.Connection, table: str, columns: list[str]) -> Iterator[Row | None]:
    """Yield the rows of a table from both of its ends up to the first damaged page, each at least once.

    A row that is there and cannot be decoded is ``None``, here and in `numbered_rows`.
    """
    statement = f"SELECT {', '.join(columns)} FROM {table}"
    for direction in ("", " ORDER BY 1 DESC"):
        scan = Scan(raw, statement + direction)
        yield from scan
        yield from [None] * scan.skipped
        if not scan.damaged:
            return


def is_readable(raw: apsw.Connection, table: str) -> bool:
    """Tell whether all of a table can be read."""
    scan = Scan(raw, f"SELECT * FROM {table}")
    deque(scan, maxlen=0)
    return not (scan.damaged or scan.skipped)


def numbered_rows(
    raw: apsw.Connection, table: str, columns: list[str], key: str, known: Sequence[int] = ()
) -> Iterator[Row | None]:
    """Yield the rows of a table with a whole number for its key, around every damaged page, each at least once.

    A stretch that cannot be read is halved and tried again: at one of the ``known`` keys as long as there
    are any in it, else in its middle, until nothing is found several times over.
    """
    gaps = deque([(-(1 << 62), 1 << 62, 0)])
    while gaps:
        low, high, fruitless = gaps.popleft()
        last, first = low - 1, high + 1
        statement = (
            f"SELECT {key}, {', '.join(columns)} FROM {table} WHERE {key} BETWEEN {low} AND {high} ORDER BY {key}"
        )
        upwards, downwards = Scan(raw, statement), Scan(raw, f"{statement} DESC")
        for row in upwards:
            last = row[0]
            yield row[1:]
        yield from [None] * upwards.skipped
        if not upwards.damaged:
            continue
        for row in downwards:
            first = row[0]
            yield row[1:]
        yield from [None] * downwards.skipped
        fruitless = fruitless + 1 if (last, first) == (low - 1, high + 1) else 0
        gaps += [(start, end, fruitless) for start, end in _halves(last + 1, first - 1, known, fruitless)]


def _halves(low: int, high: int, known: Sequence[int], fruitless: int) -> list[tuple[int, int]]:
    if low >= high:
        return []
    inside = known[bisect_left(known, low) : bisect_right(known, high)]
    if inside:
        middle = inside[len(inside) // 2]
        halves = [(low, middle - 1), (middle, middle), (middle + 1, high)]
    elif known or fruitless >= _PATIENCE:
        halves = []
    else:
        middle = (low + high) // 2
        halves = [(low, middle), (middle + 1, high)]
    return [(start, end) for start, end in halves if start <= end]


def graft_schema(damaged: Path, template: Path) -> None:
    """Give a file whose schema is lost the pages that hold it in an empty file of the same schema.

    Files that were made by the same steps have the roots of their tables on the same pages.
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


class Scan:
    """The rows of a statement as far as they can be read.

    Afterwards ``damaged`` says whether it ended early, ``skipped`` how many rows have text that is not UTF-8.
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
                except UnicodeDecodeError:  # the cursor goes on with the row after it
                    self.skipped += 1
                    continue
                if row is None:
                    return
                yield row
        except apsw.Error:
            self.damaged = True
