"""Detection of damage in a SQLite store, and replacement of a damaged file by a recovered one.

Files of a repair:

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

import errno
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw
import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreCorrupt, StoreFull, StoreMissing, StoreUnavailable
from talaria.storage.sqlite.connection import translate_error
from talaria.storage.sqlite.open import DEFAULTS, create_private_file, open_raw
from talaria.storage.sqlite.rebuild import RebuildReport, count_unreadable_rows, rebuild
from talaria.storage.sqlite.store_file import (
    CheckRecord,
    StoreLock,
    check_not_lost,
    find_newest_damaged,
    is_interrupted,
)

_COMPANIONS = ("", "-wal")
_STEPS_PER_CHECK = 20_000


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


class Recovery(Struct, frozen=True):
    """Result of a repair: where the damaged file is kept, and what was recovered and lost."""

    kept: Path
    sessions: int
    messages: int
    lost_messages: int = 0
    lost_rows: int = 0

    def __str__(self) -> str:
        return (
            f"The store was damaged. {_format_count(self.messages, 'message')} in"
            f" {_format_count(self.sessions, 'session')}"
            f" {'was' if self.messages == 1 else 'were'} recovered. {self._describe_losses()}"
            f" The damaged file is kept as {self.kept}."
        )

    def _describe_losses(self) -> str:
        lost = [
            _format_count(count, noun)
            for count, noun in ((self.lost_messages, "message"), (self.lost_rows, "other record"))
            if count
        ]
        return f"At least {' and '.join(lost)} couldn't be read." if lost else "No message is known to be missing."


class Examination(Struct, frozen=True):
    """Damage found in a file, one sentence each, and whether the check was complete."""

    damage: list[str]
    complete: bool = True


def find_damage(path: Path) -> list[str]:
    """Check a file thoroughly and return its damage, one sentence each."""
    return examine(path, thorough=True).damage


def examine(path: Path, *, thorough: bool, steps: int = 0, stop: threading.Event | None = None) -> Examination:
    """Check a file for damage, for at most ``steps`` virtual machine steps, until ``stop`` is set.

    ``thorough`` also compares indexes with their tables and decodes every row. An interrupted check is not complete;
    0 steps means no limit.
    """
    try:
        check_not_lost(path)
        if not path.exists():
            return Examination([])
        if is_interrupted(path):
            StoreLock(path).end()  # raises while the repair is running
            return Examination([f"A repair of {path} was interrupted."])
        raw = open_raw(path, DEFAULTS)
    except (StoreCorrupt, StoreMissing) as error:
        return Examination([str(error)])
    checks = iter(range(steps // _STEPS_PER_CHECK))
    try:
        if steps or stop is not None:
            raw.set_progress_handler(
                lambda: (steps > 0 and next(checks, None) is None) or (stop is not None and stop.is_set()),
                _STEPS_PER_CHECK,
            )
        rows = raw.execute(f"PRAGMA {'integrity_check' if thorough else 'quick_check'}(10)").fetchall()
        damage = [str(row[0]) for row in rows if row[0] != "ok"]
        if thorough and not damage:
            unreadable = count_unreadable_rows(raw).items()
            damage = [
                f"{_format_count(count, 'row')} of the table {table} can't be read." for table, count in unreadable
            ]
        return Examination(damage)
    except apsw.InterruptError:
        return Examination([], complete=False)
    except apsw.Error as error:
        return Examination([str(translate_error(error, str(path)))])
    finally:
        raw.close(force=True)


def recover(path: Path, clock: Clock | None = None) -> Recovery:
    """Replace a damaged file by a recovered one; raises `Refused` while another process uses it.

    The damaged file stays in place until the new one is complete. If the process is killed, the next call finishes or
    repeats the repair. Raises `StoreFull` or `StoreUnavailable` if the repair fails.
    """
    now = (clock or SystemClock()).now()
    lock = StoreLock(path, alone=True)
    try:
        files = RepairFiles(path)
        files.build(_fill_replacement)
        damaged, report = files.swap(now)
        CheckRecord(path).write("sound", now)
        return Recovery(damaged, report.sessions, report.messages, report.lost_messages, report.lost_rows)
    except apsw.Error as error:
        raise _make_error(translate_error(error, str(path)), path) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        raise _make_error((StoreFull if full else StoreUnavailable)(f"{error.strerror}."), path) from error
    finally:
        lock.end()


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


def _fill_replacement(damaged: Path, fresh: Path) -> RebuildReport:
    create_private_file(fresh)
    open_raw(fresh, DEFAULTS).close()
    target = open_raw(fresh, DEFAULTS)
    try:
        return rebuild(damaged, fresh, target)
    finally:
        target.close()


def _make_error(error: Exception, path: Path) -> StoreFull | StoreUnavailable:
    error_type = StoreFull if isinstance(error, StoreFull) else StoreUnavailable
    advice = " The repair needs twice the size of the file. Free some space." if error_type is StoreFull else ""
    return error_type(f"{path} is damaged and couldn't be repaired: {error}{advice} Nothing was changed.")


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
