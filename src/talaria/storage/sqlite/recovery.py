"""Find damage in a SQLite store, and replace a damaged file by a new one with what can be read."""

import errno
import threading
from pathlib import Path

import apsw
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import StoreCorrupt, StoreFull, StoreMissing, StoreUnavailable
from talaria.storage.sqlite.check_record import CheckRecord
from talaria.storage.sqlite.errors import translated
from talaria.storage.sqlite.opening import DEFAULTS, create_private, open_raw
from talaria.storage.sqlite.presence import Presence
from talaria.storage.sqlite.rebuild import Rebuilt, rebuild, unreadable_rows
from talaria.storage.sqlite.repair_files import RepairFiles
from talaria.storage.sqlite.repair_state import check_not_lost, is_interrupted

_STEPS_BETWEEN_LOOKS = 20_000


class Recovery(Struct, frozen=True):
    """What became of a damaged file."""

    kept: Path
    sessions: int
    messages: int
    lost_messages: int = 0
    lost_rows: int = 0

    def __str__(self) -> str:
        return (
            f"The store was damaged. {_counted(self.messages, 'message')} in {_counted(self.sessions, 'session')}"
            f" {'was' if self.messages == 1 else 'were'} recovered. {self._losses()}"
            f" The damaged file is kept as {self.kept}."
        )

    def _losses(self) -> str:
        lost = [
            _counted(count, noun)
            for count, noun in ((self.lost_messages, "message"), (self.lost_rows, "other record"))
            if count
        ]
        return f"At least {' and '.join(lost)} could not be read." if lost else "No message is known to be missing."


class Examination(Struct, frozen=True):
    """What is wrong with a file, a sentence each, and whether all of it was looked at."""

    damage: list[str]
    complete: bool = True


def find_damage(path: Path) -> list[str]:
    """Look at everything in a file and return what is wrong with it, a sentence each."""
    return examine(path, thorough=True).damage


def examine(path: Path, *, thorough: bool, steps: int = 0, stop: threading.Event | None = None) -> Examination:
    """Look for damage; with ``steps`` only so far, and until ``stop`` is set.

    ``thorough`` also compares indexes with their tables and decodes every row.
    """
    try:
        check_not_lost(path)
        if not path.exists():
            return Examination([])
        if is_interrupted(path):
            Presence(path).end()  # raises while the repair is under way
            return Examination([f"A repair of {path} was interrupted."])
        raw = open_raw(path, DEFAULTS)
    except (StoreCorrupt, StoreMissing) as error:
        return Examination([str(error)])
    looks = iter(range(steps // _STEPS_BETWEEN_LOOKS))
    try:
        if steps or stop is not None:
            raw.set_progress_handler(
                lambda: (steps > 0 and next(looks, None) is None) or (stop is not None and stop.is_set()),
                _STEPS_BETWEEN_LOOKS,
            )
        rows = raw.execute(f"PRAGMA {'integrity_check' if thorough else 'quick_check'}(10)").fetchall()
        damage = [str(row[0]) for row in rows if row[0] != "ok"]
        if thorough and not damage:
            unreadable = unreadable_rows(raw).items()
            damage = [f"{_counted(count, 'row')} of the table {table} cannot be read." for table, count in unreadable]
        return Examination(damage)
    except apsw.InterruptError:
        return Examination([], complete=False)
    except apsw.Error as error:
        return Examination([str(translated(error, str(path)))])
    finally:
        raw.close(True)


def recover(path: Path, clock: Clock | None = None) -> Recovery:
    """Replace a damaged file by a new one; raises `Refused` while another process uses it.

    The damaged file stays in place until the new one is complete. Killed anywhere, a repair is finished or repeated
    by the next call.
    """
    now = (clock or SystemClock()).now()
    presence = Presence(path, alone=True)
    try:
        files = RepairFiles(path)
        files.build(_fill)
        kept, report = files.swap(now)
        CheckRecord(path).write("sound", now)
        return Recovery(kept, report.sessions, report.messages, report.lost_messages, report.lost_rows)
    except apsw.Error as error:
        raise _failed(translated(error, str(path)), path) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        raise _failed((StoreFull if full else StoreUnavailable)(f"{error.strerror}."), path) from error
    finally:
        presence.end()


def _fill(damaged: Path, fresh: Path) -> Rebuilt:
    create_private(fresh)
    open_raw(fresh, DEFAULTS).close()
    target = open_raw(fresh, DEFAULTS)
    try:
        return rebuild(damaged, fresh, target)
    finally:
        target.close()


def _failed(error: Exception, path: Path) -> StoreFull | StoreUnavailable:
    made = StoreFull if isinstance(error, StoreFull) else StoreUnavailable
    advice = " The repair needs twice the size of the file: free some space." if made is StoreFull else ""
    return made(f"{path} is damaged and could not be repaired: {error}{advice} Nothing was changed.")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
