"""Order of the tests of a parallel run: long ones first, and those that wait mixed with those that compute.

Each worker of pytest-xdist starts with an equal part of the list, and takes tests from the end of others' parts when
it has no more. A long test at the end of a run would leave the other workers without work. In the order of their names,
the tests of chat networks, most of which wait, would run at the same time and leave the processor idle.
"""

from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parent
# Folders with long tests, and the number of workers that start with a part of them.
LONGEST = {"web/browser": 2, "system": 2, "install": 1, "api": 1}
TOGETHER = {"house"}  # packages whose modules share cached data


def spread(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the items in an order that distributes them well among workers; it depends only on the items."""
    starts = [part for folder, number in LONGEST.items() for part in _split(_within(items, folder), number)]
    started = {item.nodeid for part in starts for item in part}
    rest = sorted((item for item in items if item.nodeid not in started), key=lambda item: _mix(item.path))
    arranged: list[pytest.Item] = []
    for worker in range(workers):
        size = (len(items) - len(arranged)) // (workers - worker)
        part = [item for start in starts[worker::workers] for item in start]
        filling = max(0, size - len(part))
        arranged += [*part, *rest[:filling]]
        del rest[:filling]
    return [*arranged, *rest]


def _within(items: list[pytest.Item], folder: str) -> list[pytest.Item]:
    within = {path for path in {item.path for item in items} if path.is_relative_to(ROOT / folder)}
    return [item for item in items if item.path in within]


def _split(items: list[pytest.Item], number: int) -> list[list[pytest.Item]]:
    """Return contiguous parts of equal size."""
    return [items[len(items) * one // number : len(items) * (one + 1) // number] for one in range(number)]


@cache
def _mix(path: Path) -> int:
    """Return a number that sorts modules independently of their names; folders below a package stay together."""
    package, *inside = path.relative_to(ROOT).parts
    return crc32("/".join([package, *inside[: package not in TOGETHER]]).encode())
