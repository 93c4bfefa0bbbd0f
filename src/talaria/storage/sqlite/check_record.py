"""Record of the last integrity check of a store, and detection of unclean shutdowns.

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

from talaria.storage.sqlite.file_lock import is_used

CheckState = Literal["sound", "unclean", "damaged", "unknown"]
_INTERVAL = timedelta(days=1)
_SEPARATOR = " "


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
