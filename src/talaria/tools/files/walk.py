"""Walk over the files of a folder, in order, skipping ignored ones."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from talaria.tools.files.gitignore import Rule, is_ignored, rules_above, rules_of


class Entry(Struct, frozen=True):
    """A file or folder and its depth below the start; links are not followed."""

    path: Path
    depth: int
    is_folder: bool
    size: int


def walk(folder: Path, *, depth: int | None = None) -> Iterator[Entry]:
    """Yield the content of a folder, each folder before its content, down to ``depth`` levels."""
    yield from _walk(folder, (*rules_above(folder),), 1, depth)


def _walk(folder: Path, outer: tuple[Rule, ...], level: int, depth: int | None) -> Iterator[Entry]:
    rules = (*outer, *rules_of(folder))
    for found in _sorted(folder):
        path = Path(found.path)
        is_folder = found.is_dir(follow_symlinks=False)
        if is_ignored(path, rules, is_folder=is_folder):
            continue
        yield Entry(path, level, is_folder, 0 if is_folder else _size(found))
        if is_folder and (depth is None or level < depth):
            yield from _walk(path, rules, level + 1, depth)


def _sorted(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        return []


def _size(found: "os.DirEntry[str]") -> int:
    try:
        return found.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
