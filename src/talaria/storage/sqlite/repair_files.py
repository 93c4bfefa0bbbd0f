"""Files of a repair, and the swap of a damaged store for its replacement.

    talaria.db              the store; damaged until the last step replaces it
    talaria.db.salvage      working copy of the damaged file
    talaria.db.recovering   replacement that is being filled
    talaria.db.recovered    complete replacement: an interrupted repair is finished from here, not repeated
    talaria.db.report       numbers of recovered and lost rows
    talaria.db.damaged-…    the damaged file, preserved
    talaria.db.newer-…      a store of a newer version, preserved when an older one is restored

A log (``-wal``) belongs to the file with its name. A stale log would be replayed into a new file of that name, so it is
removed before the swap, after it has been preserved with the damaged file.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from talaria.storage.sqlite.rebuild import RebuildReport
from talaria.storage.sqlite.repair_state import find_newest_damaged

_COMPANIONS = ("", "-wal")


class RepairFiles:
    """Files of one repair; the caller holds the store's exclusive lock."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._salvage, self._fresh, self._recovered, self._report = (
            store.with_name(f"{store.name}.{kind}") for kind in ("salvage", "recovering", "recovered", "report")
        )

    @property
    def source(self) -> Path:
        """The damaged file: the store, or if that is missing or empty, the newest preserved one."""
        damaged_copy = find_newest_damaged(self._store)
        return damaged_copy if damaged_copy is not None and not _get_size(self._store) else self._store

    def build(self, fill: Callable[[Path, Path], RebuildReport]) -> None:
        """Create a complete replacement, unless one exists.

        ``fill`` gets the paths of a working copy and of the new file.
        """
        self._clear()
        if self._recovered.exists():
            return
        try:
            source = self.source
            self._salvage.touch(mode=0o600)
            for companion in _COMPANIONS:
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{source}{companion}", f"{self._salvage}{companion}")
            report = fill(self._salvage, self._fresh)
            self._report.write_bytes(msgspec.json.encode(report))
            _sync(self._report)
            _sync(self._fresh)
            self._fresh.rename(self._recovered)
            _sync(self._store.parent)
        finally:
            self._clear()

    def swap(self, now: datetime) -> tuple[Path, RebuildReport]:
        """Put the replacement in place; return the path of the preserved damaged file and the report."""
        report = self._read_report()
        damaged_copy = self._link_damaged(now)
        _sync(self._store.parent)
        for companion in ("-wal", "-shm"):
            Path(f"{self._store}{companion}").unlink(missing_ok=True)
        self._recovered.rename(self._store)
        _sync(self._store.parent)
        self._report.unlink(missing_ok=True)
        return damaged_copy, report

    def _link_damaged(self, now: datetime) -> Path:
        """Preserve the damaged file and its log under a second name, and return that name."""
        source = self.source
        if source != self._store:
            return source
        damaged_copy = self._find_linked() or self._store.with_name(f"{self._store.name}.damaged-{now:%Y%m%dT%H%M%S%f}")
        for companion in reversed(_COMPANIONS):
            original, second = Path(f"{source}{companion}"), Path(f"{damaged_copy}{companion}")
            if original.exists() and not second.exists():
                _link(original, second)
        return damaged_copy

    def _find_linked(self) -> Path | None:
        newest = find_newest_damaged(self._store)
        return newest if newest is not None and self._store.exists() and newest.samefile(self._store) else None

    def _read_report(self) -> RebuildReport:
        try:
            return msgspec.json.decode(self._report.read_bytes(), type=RebuildReport)
        except (OSError, msgspec.DecodeError):
            return RebuildReport(0, 0)

    def _clear(self) -> None:
        for file in (self._salvage, self._fresh):
            for companion in (*_COMPANIONS, "-shm"):
                Path(f"{file}{companion}").unlink(missing_ok=True)


def swap_store(store: Path, replacement: Path, now: datetime) -> Path:
    """Put a complete replacement in the place of a newer version's store; return where that is preserved.

    The caller holds the store's exclusive lock. Killed anywhere, the path leads to one of the two files.
    """
    newer = store.with_name(f"{store.name}.newer-{now:%Y%m%dT%H%M%S%f}")
    for companion in reversed(_COMPANIONS):
        if Path(f"{store}{companion}").exists():
            _link(Path(f"{store}{companion}"), Path(f"{newer}{companion}"))
    _sync(store.parent)
    for companion in ("-wal", "-shm"):
        Path(f"{store}{companion}").unlink(missing_ok=True)
    replacement.rename(store)
    _sync(store.parent)
    return newer


def _link(original: Path, second: Path) -> None:
    try:
        second.hardlink_to(original)
    except OSError:  # some file systems have no hard links
        part = second.with_name(f"{second.name}.part")
        shutil.copy2(original, part)
        _sync(part)
        part.rename(second)


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
