"""State of checks and repairs of a store, in files next to it.

SQLite deletes the write-ahead log when the last process closes the file. If there is a log although no process has the
file open, a process was killed or the machine lost power: the shutdown was unclean. This holds for any number of
processes. The next process to open the file records it, because closing the file again deletes the log.
"""

import os
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.core.errors import StoreCorrupt, StoreMissing
from talaria.storage.sqlite.store_file import is_used

CheckState = Literal["sound", "unclean", "damaged", "unknown"]
_INTERVAL = timedelta(days=1)
_SEPARATOR = " "
_UNFINISHED = (".recovering", ".recovered")


class CheckRecord(Struct, frozen=True):
    """File next to a store with the result and time of the last check.

    If it is lost, the store is checked again.
    """

    store: Path

    @property
    def exists(self) -> bool:
        """Return whether a store has existed here."""
        return self._file.exists()

    @property
    def state(self) -> CheckState:
        """Result of the last check; ``unknown`` if there is no valid record."""
        found = self._read()[0]
        return found if found in {"sound", "unclean", "damaged"} else "unknown"  # type: ignore[return-value]

    @property
    def needs_check(self) -> bool:
        """Return whether to check for damage before the store is used."""
        return self.state in {"unclean", "damaged"}

    def is_due(self, now: datetime) -> bool:
        """Return whether a full check is due: none within a day, or the last one not sound.

        Also true if the recorded time is in the future, because the clock was wrong.
        """
        state, at = self._read()
        try:
            return state != "sound" or not timedelta() <= now - datetime.fromisoformat(at) < _INTERVAL
        except ValueError:
            return True

    def write(self, state: CheckState, now: datetime) -> None:
        """Write the state durably; errors of the disk are ignored."""
        with suppress(OSError):  # a full or read-only disk cannot hold a record
            descriptor = os.open(self._file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, f"{state}{_SEPARATOR}{now.isoformat()}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Delete the record before a new store is created."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def note_unclean_end(self, now: datetime) -> None:
        """Record an unclean shutdown; call before the store is opened."""
        if self._has_log() and not is_used(self.store) and not self.needs_check:
            self.write("unclean", now)

    def _has_log(self) -> bool:
        try:
            return os.stat(f"{self.store}-wal").st_size > 0  # noqa: PTH116 (runs at every start)
        except OSError:
            return False

    def _read(self) -> tuple[str, str]:
        try:
            state, _, at = self._file.read_text(encoding="utf-8").strip().partition(_SEPARATOR)
        except (OSError, UnicodeDecodeError):
            return "", ""
        return state, at

    @property
    def _file(self) -> Path:
        return Path(f"{self.store}.checked")


def is_interrupted(store: Path) -> bool:
    """Return whether a repair of a store was started but not finished."""
    return any(os.path.exists(f"{store}{suffix}") for suffix in _UNFINISHED)  # noqa: PTH110 (runs at every start)


def find_newest_damaged(store: Path) -> Path | None:
    """Return the damaged file preserved by the latest repair of a store, or ``None``."""
    damaged_files = [
        path for path in store.parent.glob(f"{store.name}.damaged-*") if not path.name.endswith(("-wal", ".part"))
    ]
    return max(damaged_files, default=None)


def check_not_lost(path: Path) -> None:
    """Raise `StoreMissing` if the store is missing or empty although other files show it existed."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = -1
    except OSError:  # opening the file reports the error
        return
    if size > 0:
        return
    damaged_files = find_newest_damaged(path)
    condition = "missing" if size < 0 else "empty (0 bytes)"
    if damaged_files is not None:
        raise StoreMissing(
            f"{path} is {condition}, but {damaged_files} holds a damaged store. Run `talaria doctor --fix` to recover"
            " it, or move it away to start with a new store."
        )
    if is_interrupted(path) or (size == 0 and CheckRecord(path).exists and not _has_content(path)):
        raise StoreMissing(
            f"{path} is {condition} although it held a store. Restore a copy, or run `talaria doctor --fix` to"
            " start with a new store."
        )


def _has_content(path: Path) -> bool:
    """Return whether another process has just created the store: it writes its record after its content."""
    try:
        return path.stat().st_size > 0
    except OSError:  # removed since
        return False


def check_not_rescued(path: Path) -> None:
    """Raise `StoreMissing` for a missing store whose contents were saved to a copy when it was deleted."""
    copy = max(path.parent.glob(f"{path.name}.rescued-*"), default=None)
    if copy is not None:
        raise StoreMissing(
            f"{path} is missing, but {copy} is a copy of it. Rename the copy to {path.name}, or move it away to start"
            " with a new store."
        )


def check_not_interrupted(path: Path) -> None:
    """Raise `StoreCorrupt` if a repair must be finished first; the caller holds the store's lock."""
    if is_interrupted(path):
        raise StoreCorrupt(f"A repair of {path} was interrupted. Run `talaria doctor --fix` to finish it.")
