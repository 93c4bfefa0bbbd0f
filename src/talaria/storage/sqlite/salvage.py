"""Reading of all intact rows of a damaged SQLite file, by queries or from its pages.

Follows SQLite's published file format: table leaf pages, their cells and the records in them.
"""

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from talaria.storage.tables.sql import Row

_MAX_FRUITLESS = 8  # how often a gap without a readable row is split
_TABLE_LEAF = 13
_FIRST_PAGE_HEADER = 100
_FIRST_FREE_PAGE = 32
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_CONSTANTS = {0: None, 8: 0, 9: 1}
_FLOAT = 7


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


def iterate_page_rows(file: Path, page_size: int, columns: int) -> Iterator[tuple[int, Row]]:
    """Yield (key, values) of every row with ``columns`` columns on any page that is not free.

    If the list of free pages is damaged, deleted rows may be included. Unreadable cells are skipped.
    """
    pages = _Pages(file.read_bytes(), page_size)
    free = pages.free()
    for number in (one for one in range(1, pages.count + 1) if one not in free):
        for cell in pages.cells(number):
            try:
                key, record = pages.record(number, cell)
                values = _decode_values(record)
            except (IndexError, ValueError, struct.error):
                continue
            if len(values) == columns:
                yield key, tuple(values)


class _Pages:
    """SQLite file as pages numbered from 1."""

    def __init__(self, content: bytes, size: int) -> None:
        self._content = content
        self._size = size
        self.count = len(content) // size

    def free(self) -> set[int]:
        """Return the numbers of unused pages, as far as the free list can be followed."""
        found: set[int] = set()
        trunk = int.from_bytes(self._content[_FIRST_FREE_PAGE : _FIRST_FREE_PAGE + 4])
        while 1 < trunk <= self.count and trunk not in found:
            page = self._read_page(trunk)
            count = min(int.from_bytes(page[4:8]), self._size // 4 - 2)
            found |= {trunk, *(one for (one,) in struct.iter_unpack(">I", page[8 : 8 + 4 * count]))}
            trunk = int.from_bytes(page[:4])
        return found

    def cells(self, number: int) -> list[int]:
        """Return the offsets of the cells on a page; empty unless it is a table leaf."""
        page, start = self._read_page(number), _FIRST_PAGE_HEADER if number == 1 else 0
        if page[start] != _TABLE_LEAF:
            return []
        count = int.from_bytes(page[start + 3 : start + 5])
        pointers = page[start + 8 : start + 8 + 2 * count]
        return [offset for (offset,) in struct.iter_unpack(">H", pointers[: len(pointers) // 2 * 2])]

    def record(self, number: int, offset: int) -> tuple[int, bytes]:
        """Return the key and the complete record of a cell, including overflow pages.

        Raises `ValueError` or `IndexError` for a damaged record.
        """
        page = self._read_page(number)
        length, offset = _read_varint(page, offset)
        key, offset = _read_varint(page, offset)
        if not 0 <= length <= len(self._content):
            raise ValueError("the record is longer than the file")
        local = self._count_local_bytes(length)
        chunks = [page[offset : offset + local]]
        spilled = int.from_bytes(page[offset + local : offset + local + 4]) if local < length else 0
        while spilled and len(chunks) <= length // (self._size - 4) + 1:
            page = self._read_page(spilled)
            chunks.append(page[4:])
            spilled = int.from_bytes(page[:4])
        record = b"".join(chunks)
        if len(record) < length:
            raise ValueError("the record is cut short")
        return key, record[:length]

    def _read_page(self, number: int) -> bytes:
        if not 1 <= number <= self.count:
            raise IndexError(number)
        return self._content[(number - 1) * self._size : number * self._size]

    def _count_local_bytes(self, length: int) -> int:
        max_local = self._size - 35
        if length <= max_local:
            return length
        min_local = (self._size - 12) * 32 // 255 - 23
        local = min_local + (length - min_local) % (self._size - 4)
        return local if local <= max_local else min_local


def _decode_values(record: bytes) -> list[object]:
    header, offset = _read_varint(record, 0)
    kinds = []
    while offset < header:
        kind, offset = _read_varint(record, offset)
        kinds.append(kind)
    values: list[object] = []
    for kind in kinds:
        value, offset = _decode_value(record, kind, offset)
        values.append(value)
    return values


def _decode_value(record: bytes, kind: int, offset: int) -> tuple[object, int]:
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], offset
    if kind in _INTEGERS:
        end = offset + _INTEGERS[kind]
        return int.from_bytes(record[offset:end], signed=True), end
    if kind == _FLOAT:
        return struct.unpack(">d", record[offset : offset + 8])[0], offset + 8
    end = offset + (kind - 12) // 2
    if not offset <= end <= len(record):
        raise ValueError("the value is cut short")
    raw = record[offset:end]
    return raw.decode() if kind % 2 else raw, end


def _read_varint(page: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for position in range(9):
        byte = page[offset + position]
        if position == 8:  # the ninth byte has eight bits of value, the others seven
            value = value << 8 | byte
        else:
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                break
    return value - (1 << 64) if value >> 63 else value, offset + position + 1
