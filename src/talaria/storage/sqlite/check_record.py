"""Record of the last look for damage in a store, and whether the store was in use when its last user ended.

SQLite deletes the write-ahead log when the last user of a file closes it. A log that is there although nobody has the
file open was left by a user that was killed, or by a machine that lost power: the end was not clean. That holds for any
number of processes. The next one to open the file records it, since closing it again deletes the log.
"""

import os
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.storage.sqlite.presence import is_used

CheckState = Literal["sound", "unclean", "damaged", "unknown"]
_INTERVAL = timedelta(days=1)
_SEPARATOR = " "


class CheckRecord(Struct, frozen=True):
    """The file next to a store that says how it was found and when. Losing it costs no more than another look."""

    store: Path

    @property
    def exists(self) -> bool:
        """Whether there ever was a store here."""
        return self._file.exists()

    @property
    def state(self) -> CheckState:
        """How the store was found last."""
        found = self._read()[0]
        return found if found in {"sound", "unclean", "damaged"} else "unknown"  # type: ignore[return-value]

    @property
    def wants_check(self) -> bool:
        """Whether to look for damage before the store is used."""
        return self.state in {"unclean", "damaged"}

    def is_due(self, now: datetime) -> bool:
        """Tell whether the last full check is more than a day ago, or lies ahead because the clock was wrong."""
        state, at = self._read()
        try:
            return state != "sound" or not timedelta() <= now - datetime.fromisoformat(at) < _INTERVAL
        except ValueError:
            return True

    def write(self, state: CheckState, now: datetime) -> None:
        """Record how the store was found, durably."""
        with suppress(OSError):  # on a full or read-only disk there is nothing to record
            descriptor = os.open(self._file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, f"{state}{_SEPARATOR}{now.isoformat()}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Remove the record: a new store is about to be made."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def note_unclean_end(self, now: datetime) -> None:
        """Record an end that was not clean; to be called before the store is opened."""
        if self._has_log() and not is_used(self.store) and not self.wants_check:
            self.write("unclean", now)

    def _has_log(self) -> bool:
        try:
            return os.stat(f"{self.store}-wal").st_size > 0  # noqa: PTH116 (at every start)
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
