"""Shutdown reports of the gateway: why it ended, and what is known of one that crashed."""

import fcntl
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from talaria.core.formatting import format_age, pluralize
from talaria.core.ids import new_id

LAST_END = "last-end.json"
_MARKS = "gateway-*.running"


class ShutdownReport(Struct, frozen=True, kw_only=True):
    """The end of one process. Without ``why`` it crashed at an unknown time.

    ``turns`` were running when it was asked to end; ``unfinished`` are the sessions in which one was interrupted. While
    it is running, ``address`` is its status address.
    """

    pid: int
    started: datetime
    version: str = ""
    started_by: str = ""
    worker: str = ""
    address: str = ""
    at: datetime | None = None
    why: str = ""
    turns: int = 0
    unfinished: tuple[str, ...] = ()
    load: tuple[float, ...] = ()
    memory: int = 0

    def describe(self, now: datetime) -> str:
        """Return the report as a sentence."""
        if not self.why or self.at is None:
            began = format_age(self.started, now)
            return f"The gateway started {began} ended unexpectedly: it was killed, or the machine went down."
        load = f" Load {self.load[0]:.1f}, {self.memory // 2**20} MiB in use." if self.load else ""
        cut = pluralize(len(self.unfinished), "turn")
        rest = f"; {cut} interrupted, to be resumed at the next start" if self.unfinished else ""
        return f"The gateway last ended {format_age(self.at, now)}: {self.why}{rest}.{load}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ShutdownReport).decode


def start_report(version: str, worker: str = "", address: str = "") -> ShutdownReport:
    """Return the initial report of this process, written at its start."""
    return ShutdownReport(
        pid=os.getpid(),
        started=datetime.now(UTC),
        version=version,
        started_by=_describe_parent(),
        worker=worker,
        address=address,
    )


def finish_report(initial: ShutdownReport, why: str, turns: int, unfinished: tuple[str, ...]) -> ShutdownReport:
    """Return the final report of this process, with the current state of the machine."""
    return structs.replace(
        initial,
        at=datetime.now(UTC),
        why=why,
        turns=turns,
        unfinished=unfinished,
        load=tuple(round(one, 2) for one in os.getloadavg()),
        memory=measure_memory(),
    )


@contextmanager
def running_mark(folder: Path, initial: ShutdownReport) -> Iterator[None]:
    """Create a marker file in the folder, locked while this process is alive, and removed at the end.

    Raises `OSError` if that fails.
    """
    mark = folder / f"gateway-{new_id()}.running"
    handle = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, _encode(initial))
        yield
    finally:
        mark.unlink(missing_ok=True)
        os.close(handle)


def write_report(folder: Path, report: ShutdownReport) -> None:
    """Replace the stored report; raises `OSError` if that fails."""
    draft = folder / f".{LAST_END}.{os.getpid()}.new"
    try:
        draft.write_bytes(msgspec.json.format(_encode(report)))
        draft.replace(folder / LAST_END)
    finally:
        draft.unlink(missing_ok=True)


def read_last_report(folder: Path) -> ShutdownReport | None:
    """Return how the gateway of this folder last ended, including a crash."""
    found = [one for _, one in _list_abandoned(folder)]
    written = _read(folder / LAST_END)
    if written is not None:
        found.append(written)
    return max(found, key=lambda one: one.at or one.started, default=None)


def list_running(folder: Path) -> list[ShutdownReport]:
    """Return the live processes of this machine with a marker in the folder, oldest first."""
    found = []
    for mark in folder.glob(_MARKS):
        with suppress(OSError):
            initial = _read(mark)
            if initial is not None and _is_locked(mark):
                found.append(initial)
    return sorted(found, key=lambda one: one.started)


def record_last_report(folder: Path) -> ShutdownReport | None:
    """Return the last report and store it; markers of dead processes are removed."""
    last = read_last_report(folder)
    if last is not None and last.at is None:
        write_report(folder, last)
    for mark, _ in _list_abandoned(folder):
        mark.unlink(missing_ok=True)
    return last


def measure_memory() -> int:
    """Return the memory used by this process in bytes; if unavailable, its maximum."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _list_abandoned(folder: Path) -> list[tuple[Path, ShutdownReport]]:
    """Return the markers that no process holds any more."""
    found = []
    for mark in folder.glob(_MARKS):
        with suppress(FileNotFoundError):
            initial = _read(mark)
            if initial is not None and not _is_locked(mark):
                found.append((mark, initial))
    return found


def _is_locked(mark: Path) -> bool:
    handle = os.open(mark, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _read(path: Path) -> ShutdownReport | None:
    """Return the content of a file; ``None`` if it is missing or damaged."""
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _describe_parent() -> str:
    """Return the parent of this process, by name if available."""
    number = os.getppid()
    try:
        name = Path(f"/proc/{number}/comm").read_text().strip()
    except OSError:
        return str(number)
    return f"{name} ({number})"
