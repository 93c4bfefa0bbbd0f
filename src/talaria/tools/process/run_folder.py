"""The folder of a background process: output, input, exit code."""

import os
from datetime import UTC, datetime
from pathlib import Path

from talaria.tools.output import readable

ROTATE_AT = 8 * 1024 * 1024
_OWNER_ONLY = 0o700
_PRIVATE = 0o600
_AT_ONCE = 65_536
_TAIL = 16_384


class ProcessFiles:
    """The files of one process; ``out`` is its output, ``out.1`` the output before the last rotation."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.out = place / "out"
        self._out = str(self.out)
        self.before = place / "out.1"
        self.input = place / "in"
        self._status = place / "status"
        self._pid = place / "pid"

    def prepare(self) -> None:
        """Create the folder, an empty output and a pipe for the input."""
        self.place.mkdir(_OWNER_ONLY, parents=True)
        self.out.touch(_PRIVATE)
        os.mkfifo(self.input, _PRIVATE)

    @property
    def pid(self) -> int:
        """Return the number of the process that was started; 0 if none was."""
        return int(_first_line(self._pid) or 0)

    @property
    def code(self) -> int | None:
        """Return the exit code, once it was written; negative for a signal."""
        line = _first_line(self._status)
        return int(line) if line else None

    @property
    def ended_at(self) -> datetime | None:
        """Return when the exit code was written; ``None`` if it wasn't."""
        try:
            return datetime.fromtimestamp(self._status.stat().st_mtime, UTC)
        except OSError:
            return None

    @property
    def size(self) -> int:
        """Return the size of the output in bytes."""
        try:
            return os.stat(self._out).st_size  # noqa: PTH116 (asked often, of many)
        except OSError:
            return 0

    def read(self, start: int, most: int) -> bytes:
        """Return a piece of the output."""
        try:
            with self.out.open("rb") as file:
                file.seek(start)
                return file.read(most)
        except OSError:
            return b""

    def last_lines(self, count: int, limit: int = _TAIL) -> str:
        """Return the last lines of the output as a person would see them, within the limit of bytes."""
        raw = self.read(max(0, self.size - limit), limit)
        if len(raw) < limit and self.before.exists():
            raw = _tail_of(self.before, limit - len(raw)) + raw
        lines = readable(raw).rstrip("\n").split("\n")
        return "\n".join(lines[-count:])

    def write(self, text: bytes) -> None:
        """Write to the input; raises `BlockingIOError` while the process does not read, `OSError` if it is gone."""
        handle = os.open(self.input, os.O_WRONLY | os.O_NONBLOCK)
        try:
            while text:
                text = text[os.write(handle, text[:_AT_ONCE]) :]
        finally:
            os.close(handle)

    def rotate(self) -> bool:
        """Rotate the output if it is too long; output written at this moment may be lost."""
        if self.size < ROTATE_AT:
            return False
        self.before.touch(_PRIVATE)
        self.before.write_bytes(_tail_of(self.out, ROTATE_AT))
        os.truncate(self.out, 0)
        return True


def _first_line(path: Path) -> str:
    """Return a completely written line; empty if there is none."""
    try:
        text = path.read_text()
    except OSError:
        return ""
    return text.strip() if text.endswith("\n") else ""


def _tail_of(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read(most)
