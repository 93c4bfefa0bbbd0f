"""Detection of damage in a SQLite store, and replacement of a damaged file by a recovered one."""

import errno
import threading
from pathlib import Path

import apsw
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreCorrupt, StoreFull, StoreMissing, StoreUnavailable
from talaria.storage.sqlite.connection import translate_error
from talaria.storage.sqlite.open import DEFAULTS, create_private_file, open_raw
from talaria.storage.sqlite.rebuild import RebuildReport, count_unreadable_rows, rebuild
from talaria.storage.sqlite.repair_files import RepairFiles
from talaria.storage.sqlite.repair_state import CheckRecord, check_not_lost, is_interrupted
from talaria.storage.sqlite.store_file import StoreLock

_STEPS_PER_CHECK = 20_000


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
        kept, report = files.swap(now)
        CheckRecord(path).write("sound", now)
        return Recovery(kept, report.sessions, report.messages, report.lost_messages, report.lost_rows)
    except apsw.Error as error:
        raise _make_error(translate_error(error, str(path)), path) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        raise _make_error((StoreFull if full else StoreUnavailable)(f"{error.strerror}."), path) from error
    finally:
        lock.end()


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
