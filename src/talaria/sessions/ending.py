"""Why a gateway ended: its last words in a file, and what to think of one that left none."""

import asyncio
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

from talaria.core.ids import new_id
from talaria.core.wording import ago, counted

LAST_END = "last-end.json"
_MARKS = "gateway-*.running"


class Stop(asyncio.Event):
    """Set when a process is to end; ``why`` is what was first said about the reason.

    ``again`` says that it is to begin anew then. Whoever asks twice is in a ``hurry``.
    """

    why = ""
    again = False

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def because(self, why: str) -> None:
        """Ask for the end."""
        if self.is_set():
            self.hurry.set()
        self.why = self.why or why
        self.set()


class Ending(Struct, frozen=True, kw_only=True):
    """The end of one process. Without ``why`` it had no time to say anything, and nobody knows when it was.

    ``turns`` ran when it was asked to end; ``unfinished`` are the conversations in which one was cut off. While it
    lives, ``address`` is where to ask it how it is doing.
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

    def told(self, now: datetime) -> str:
        """Return it as a sentence."""
        if not self.why or self.at is None:
            began = ago(self.started, now)
            return f"The gateway that began {began} ended without saying why: killed, or the machine went down."
        load = f" Load {self.load[0]:.1f}, {self.memory // 2**20} MiB in use." if self.load else ""
        cut = counted(len(self.unfinished), "turn")
        rest = f"; {cut} cut off, to go on at the next start" if self.unfinished else ""
        return f"The gateway last ended {ago(self.at, now)}: {self.why}{rest}.{load}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Ending).decode


def begun(version: str, worker: str = "", address: str = "") -> Ending:
    """Return what is known of the end of this process at its beginning."""
    return Ending(
        pid=os.getpid(),
        started=datetime.now(UTC),
        version=version,
        started_by=_parent(),
        worker=worker,
        address=address,
    )


def ended(begin: Ending, why: str, turns: int, unfinished: tuple[str, ...]) -> Ending:
    """Return the end of this process, with the state of the machine at this moment."""
    return structs.replace(
        begin,
        at=datetime.now(UTC),
        why=why,
        turns=turns,
        unfinished=unfinished,
        load=tuple(round(one, 2) for one in os.getloadavg()),
        memory=memory_in_use(),
    )


@contextmanager
def marked(folder: Path, begin: Ending) -> Iterator[None]:
    """Leave a mark in the folder that is locked for as long as this process lives, and is removed in the end.

    Raises `OSError` where it cannot be made.
    """
    mark = folder / f"gateway-{new_id()}.running"
    handle = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, _encode(begin))
        yield
    finally:
        mark.unlink(missing_ok=True)
        os.close(handle)


def write_ending(folder: Path, ending: Ending) -> None:
    """Keep the last words of a process in place of those before; raises `OSError` where that cannot be."""
    draft = folder / f".{LAST_END}.{os.getpid()}.new"
    try:
        draft.write_bytes(msgspec.json.format(_encode(ending)))
        draft.replace(folder / LAST_END)
    finally:
        draft.unlink(missing_ok=True)


def last_ending(folder: Path) -> Ending | None:
    """Return how the gateway of this folder last ended, be it without a word."""
    found = [one for _, one in _abandoned(folder)]
    said = _read(folder / LAST_END)
    if said is not None:
        found.append(said)
    return max(found, key=lambda one: one.at or one.started, default=None)


def still_running(folder: Path) -> list[Ending]:
    """Return the processes of this machine that have left their mark in a folder and live, oldest first."""
    found = []
    for mark in folder.glob(_MARKS):
        with suppress(OSError):
            begin = _read(mark)
            if begin is not None and _is_held(mark):
                found.append(begin)
    return sorted(found, key=lambda one: one.started)


def take_note(folder: Path) -> Ending | None:
    """Return the same, and keep it as said: marks of dead processes are removed."""
    last = last_ending(folder)
    if last is not None and last.at is None:
        write_ending(folder, last)
    for mark, _ in _abandoned(folder):
        mark.unlink(missing_ok=True)
    return last


def memory_in_use() -> int:
    """Return the bytes of memory that this process holds; where the system does not say, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _abandoned(folder: Path) -> list[tuple[Path, Ending]]:
    """Return the marks that nobody holds any more."""
    found = []
    for mark in folder.glob(_MARKS):
        with suppress(FileNotFoundError):
            begin = _read(mark)
            if begin is not None and not _is_held(mark):
                found.append((mark, begin))
    return found


def _is_held(mark: Path) -> bool:
    handle = os.open(mark, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _read(path: Path) -> Ending | None:
    """Return what a file says; ``None`` where there is none, or a torn one."""
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _parent() -> str:
    """Return who started this process, by name where the system tells."""
    number = os.getppid()
    try:
        name = Path(f"/proc/{number}/comm").read_text().strip()
    except OSError:
        return str(number)
    return f"{name} ({number})"
