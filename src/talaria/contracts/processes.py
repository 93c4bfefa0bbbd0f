"""Background processes: what a conversation started and goes on without it, as the store remembers it."""

import signal
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.tool import Call
from talaria.core.errors import Ambiguous, NotFound, StoreConflict
from talaria.core.ids import SessionId, WorkerId
from talaria.core.session_context import SessionContext

PROCESSES = "processes"  # the topic of hints that something is wanted of one, or has become of one
COOKIE = "TALARIA_PROCESS"  # the variable that whatever a process starts carries its id in

ProcessState = Literal["starting", "running", "ended", "killed", "lost"]
EndedBy = Literal["", "agent", "person", "conversation"]


class BackgroundProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of them; ``pid``, ``started`` and ``machine`` together tell it from all others.

    ``lost`` is one that is gone without an exit code. ``watcher`` is the worker that sees to it, ``place`` the folder
    of its files, and ``context`` the turn that started it. ``scanned`` is how far its output was looked through for
    ``patterns``, and ``matches`` how often something was found there and told. ``written`` is the last call that wrote
    to it. ``ended_by`` is who wants it to end, or wanted. ``noticed_at`` is when somebody saw that it had ended.
    """

    id: str
    session_id: SessionId
    command: str
    folder: str
    place: str
    machine: str
    host: str
    watcher: WorkerId
    begun_at: datetime
    context: SessionContext
    state: ProcessState = "starting"
    pid: int = 0
    started: str = ""
    ended_at: datetime | None = None
    noticed_at: datetime | None = None
    code: int | None = None
    last_line: str = ""
    notify: bool = False
    patterns: tuple[str, ...] = ()
    scanned: int = 0
    matches: int = 0
    matched_at: datetime | None = None
    pty: bool = False
    stdin_closed: bool = False
    written: str = ""
    ended_by: EndedBy = ""

    @property
    def is_alive(self) -> bool:
        """Whether it runs, as far as the store knows."""
        return self.state in ("starting", "running")


class ProcessGlance(Struct, frozen=True):
    """The part of one that tells whether anything is to be done about it; there may be thousands to look at."""

    id: str
    session_id: SessionId
    machine: str
    host: str
    watcher: WorkerId
    state: ProcessState = "starting"
    ended_by: EndedBy = ""

    @property
    def is_alive(self) -> bool:
        """Whether it runs, as far as the store knows."""
        return self.state in ("starting", "running")


class Wanted(Struct, frozen=True, kw_only=True):
    """A process that is to be started: ``argv`` is the call of the shell with ``command``, in a sandbox or not."""

    command: str
    argv: tuple[str, ...]
    folder: str
    notify: bool = False
    patterns: tuple[str, ...] = ()
    pty: bool = False


class BackgroundWork(Protocol):
    """What starts processes that go on without their conversation, and sees to them."""

    async def start(self, wanted: Wanted, call: Call) -> BackgroundProcess:
        """Start one that belongs to the conversation of a call; raises `ToolFailed` where that cannot be."""

    async def of_session(self, session_id: SessionId) -> list[BackgroundProcess]:
        """Return those of a conversation, oldest first."""

    async def wait(self, process: BackgroundProcess, seconds: float, call_id: str) -> BackgroundProcess:
        """Wait for its end, not longer than this, and return it as it is then: a call is about to answer with that."""

    async def write(self, process: BackgroundProcess, text: str, call_id: str) -> None:
        """Write to its input, once for each call."""

    async def close_input(self, process: BackgroundProcess) -> None:
        """Let it read the end of its input."""

    async def kill(self, process: BackgroundProcess, by: EndedBy) -> BackgroundProcess:
        """End it and all that it started, and return it as it is then."""


_PREFIX = "process:"
_LONGEST_COMMAND = 120
_SIGNALLED = 128
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BackgroundProcess).decode
_glance = msgspec.json.Decoder(ProcessGlance).decode


def add_process(tx: Transaction, process: BackgroundProcess) -> None:
    """Keep a new one; raises `StoreConflict` where its id is taken."""
    if not tx.state.replace(_key(process), _text(process), version=0):
        raise StoreConflict(f"there is a process {process.id} already")


def change_process(tx: Transaction, process: BackgroundProcess, **changes: Any) -> BackgroundProcess | None:
    """Change some fields of one, and return it as it is then; ``None`` if it is no more."""
    entry = tx.state.get(_key(process))
    if entry is None:
        return None
    changed = structs.replace(_decode(entry.value), **changes)
    if not tx.state.replace(entry.key, _text(changed), version=entry.version):
        raise StoreConflict(f"process {process.id} was changed meanwhile")
    return changed


def end_processes(tx: Transaction, session_id: SessionId) -> None:
    """Let those of a conversation that is over be ended by whoever watches them, now or after the next start."""
    for process in list_processes(tx, session_id):
        if process.is_alive and not process.ended_by:
            change_process(tx, process, ended_by="conversation")


def glance_at_processes(tx: Transaction) -> list[ProcessGlance]:
    """Return those that run, each as far as it is needed to see whether there is something to do.

    One whose conversation was deleted is to end.
    """
    alive = [glance for entry in tx.state.with_prefix(_PREFIX) if (glance := _glance(entry.value)).is_alive]
    deleted = {one for one in {glance.session_id for glance in alive} if tx.sessions.get(one) is None}
    return [
        structs.replace(glance, ended_by="conversation") if glance.session_id in deleted else glance for glance in alive
    ]


def read_process(tx: Transaction, process: BackgroundProcess | ProcessGlance) -> BackgroundProcess | None:
    """Return one as it is now; ``None`` if it is no more."""
    entry = tx.state.get(_key(process))
    return _decode(entry.value) if entry else None


def forget_process(tx: Transaction, process: BackgroundProcess) -> None:
    """Forget one."""
    tx.state.delete(_key(process))


def list_processes(tx: Transaction, session_id: SessionId | None = None) -> list[BackgroundProcess]:
    """Return those of a conversation, or all, oldest first; those that have ended are there for some days."""
    entries = tx.state.with_prefix(_PREFIX)
    found = [
        _decode(entry.value) for entry in entries if session_id is None or _glance(entry.value).session_id == session_id
    ]
    return sorted(found, key=lambda process: (process.begun_at, process.id))


def find_process(tx: Transaction, part: str) -> BackgroundProcess:
    """Return the one whose id this is, or begins so."""
    found = [_decode(entry.value) for entry in tx.state.with_prefix(_PREFIX + part)] if part else []
    exact = [process for process in found if process.id == part] or found
    if len(exact) > 1:
        raise Ambiguous(f"`{part}` fits several processes: {', '.join(process.id for process in exact)}.")
    if not exact:
        raise NotFound(f"There is no background process `{part}`.")
    return exact[0]


def named(process: BackgroundProcess) -> str:
    """Return how a sentence begins that is about a process."""
    command = " ".join(process.command.split())
    short = command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 1] + "…"
    return f"Background process {process.id} ({short})"


def outcome(process: BackgroundProcess) -> str:
    """Return how it ended, or that it runs, as the rest of a sentence."""
    match process.state:
        case "starting" | "running":
            return f"runs, for {lasted(process)} so far"
        case "ended":
            return f"ended with {in_words(process.code or 0)} after {lasted(process)}"
        case "killed":
            return f"was killed after {lasted(process)}"
        case "lost":
            return f"is gone without an exit code, after at most {lasted(process)}"


def in_words(code: int) -> str:
    """Return an exit code with the signal that it stands for."""
    try:
        return f"exit code {code} ({signal.Signals(code - _SIGNALLED).name})"
    except ValueError:
        return f"exit code {code}"


def lasted(process: BackgroundProcess, now: datetime | None = None) -> str:
    """Return how long it has run."""
    seconds = round(((process.ended_at or now or datetime.now(UTC)) - process.begun_at) / timedelta(seconds=1))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _key(process: BackgroundProcess | ProcessGlance) -> str:
    # Without the session at its end, with which it would be deleted: somebody has to end the process first.
    return f"{_PREFIX}{process.id}"


def _text(process: BackgroundProcess) -> str:
    return _encode(process).decode()
