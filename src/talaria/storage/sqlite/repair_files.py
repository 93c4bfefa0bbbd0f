"""Files of a repair, and the swap of a damaged store for its replacement.

    talaria.db              the store; damaged until the last step replaces it
    talaria.db.salvage      working copy of the damaged file
    talaria.db.recovering   replacement that is being filled
    talaria.db.recovered    complete replacement: an interrupted repair is finished from here, not repeated
    talaria.db.report       what the replacement holds, for the person
    talaria.db.damaged-…    the damaged file, kept

A log next to a file belongs to it (``-wal``). A stale one would be replayed into another file of the same name, so it
is removed before the swap; it is kept with the damaged file first.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from talaria.storage.sqlite.rebuild import Rebuilt
from talaria.storage.sqlite.repair_state import newest_kept

_COMPANIONS = ("", "-wal")


class RepairFiles:
    """The files of one repair; the caller holds the lock of the store alone."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._salvage, self._fresh, self._recovered, self._report = (
            store.with_name(f"{store.name}.{kind}") for kind in ("salvage", "recovering", "recovered", "report")
        )

    @property
    def source(self) -> Path:
        """The damaged file: the store, or the one that an earlier repair kept where the store is missing or empty."""
        kept = newest_kept(self._store)
        return kept if kept is not None and not _size(self._store) else self._store

    def build(self, fill: Callable[[Path, Path], Rebuilt]) -> None:
        """Make a complete replacement, unless there is one; ``fill`` gets a working copy and the new file's path."""
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

    def swap(self, now: datetime) -> tuple[Path, Rebuilt]:
        """Put the replacement in place; return where the damaged file is kept, and what was recovered."""
        report = self._read_report()
        kept = self._keep(now)
        _sync(self._store.parent)
        for companion in ("-wal", "-shm"):
            Path(f"{self._store}{companion}").unlink(missing_ok=True)
        self._recovered.rename(self._store)
        _sync(self._store.parent)
        self._report.unlink(missing_ok=True)
        return kept, report

    def _keep(self, now: datetime) -> Path:
        """Give the damaged file a second name, with its log."""
        source = self.source
        if source != self._store:
            return source
        kept = self._kept_already() or self._store.with_name(f"{self._store.name}.damaged-{now:%Y%m%dT%H%M%S%f}")
        for companion in reversed(_COMPANIONS):
            original, second = Path(f"{source}{companion}"), Path(f"{kept}{companion}")
            if original.exists() and not second.exists():
                _link(original, second)
        return kept

    def _kept_already(self) -> Path | None:
        newest = newest_kept(self._store)
        return newest if newest is not None and self._store.exists() and newest.samefile(self._store) else None

    def _read_report(self) -> Rebuilt:
        try:
            return msgspec.json.decode(self._report.read_bytes(), type=Rebuilt)
        except (OSError, msgspec.DecodeError):
            return Rebuilt(0, 0)

    def _clear(self) -> None:
        for file in (self._salvage, self._fresh):
            for companion in (*_COMPANIONS, "-shm"):
                Path(f"{file}{companion}").unlink(missing_ok=True)


def _link(original: Path, second: Path) -> None:
    try:
        second.hardlink_to(original)
    except OSError:  # not every file system has links
        part = second.with_name(f"{second.name}.part")
        shutil.copy2(original, part)
        _sync(part)
        part.rename(second)


def _size(path: Path) -> int:
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
