"""Background processes of a session, which outlive the turn that started them: rows, state and output."""

import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct, field, structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import ProcessRow
from talaria.contracts.tool import Call
from talaria.core.errors import Ambiguous, NotFound, StoreConflict
from talaria.core.ids import SessionId, WorkerId
from talaria.core.os_processes import is_same_process, machine_id
from talaria.core.session_context import SessionContext

PROCESSES = "processes"  # the topic that is notified when one is to be ended
PROCESS_STATES = "process_states"  # the topic that is notified when one has started or ended
COOKIE = "TALARIA_PROCESS"  # the variable that whatever a process starts carries its id in
ProcessState = Literal["starting", "running", "ended", "killed", "lost"]
EndedBy = Literal["", "agent", "person", "conversation"]
TAIL_BYTES = 1_048_576


class BackgroundProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A background process; ``pid``, ``started`` and ``machine`` together identify it.

    ``lost`` means it disappeared without an exit code. ``watcher`` is the worker that supervises it, ``files_folder``
    has its output and exit code, and ``context`` is the turn that started it. ``scanned`` is how far its output has
    been searched for ``patterns``, and ``matches`` the number of reported matches. ``written`` is the last call that
    wrote to it. ``ended_by`` is who requested its end. ``noticed_at`` is when its end was seen. ``end`` is a call that
    ends what it started in a sandbox.
    """

    id: str
    session_id: SessionId
    command: str
    folder: str
    files_folder: str = field(name="place")
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
    end: tuple[str, ...] = ()

    @property
    def is_alive(self) -> bool:
        """Return whether it is running, as far as the store knows."""
        return self.state in ("starting", "running")


class ProcessSummary(Struct, frozen=True):
    """The fields of a process needed to see whether it requires action; there may be thousands."""

    id: str
    session_id: SessionId
    machine: str
    host: str
    watcher: WorkerId
    state: ProcessState = "starting"
    ended_by: EndedBy = ""

    @property
    def is_alive(self) -> bool:
        """Return whether it is running, as far as the store knows."""
        return self.state in ("starting", "running")


class ProcessRequest(Struct, frozen=True, kw_only=True):
    """A process to start: ``argv`` is the shell call with ``command``, in a sandbox or not.

    ``end`` is a call that ends everything it started inside of a sandbox; empty if it ends with its process.
    """

    command: str
    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    end: tuple[str, ...] = ()
    notify: bool = False
    patterns: tuple[str, ...] = ()
    pty: bool = False


class BackgroundWork(Protocol):
    """The service that starts and supervises processes which outlive their turn."""

    async def start(self, request: ProcessRequest, call: Call) -> BackgroundProcess:
        """Start a process for the session of a call; raises `ToolFailed` if that is impossible."""

    async def of_session(self, session_id: SessionId) -> list[BackgroundProcess]:
        """Return the processes of a session, oldest first."""

    async def wait(self, process: BackgroundProcess, seconds: float, call_id: str) -> BackgroundProcess:
        """Wait for its end, at most this long, and return its state, which a tool call will report."""

    async def write(self, process: BackgroundProcess, text: str, call_id: str) -> None:
        """Write to its input, once per call."""

    async def close_input(self, process: BackgroundProcess) -> None:
        """Close its input."""

    async def kill(self, process: BackgroundProcess, by: EndedBy) -> BackgroundProcess:
        """End it and all its children, and return its final state."""


_LONGEST_COMMAND = 120
_SIGNALLED = 128
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BackgroundProcess).decode
_decode_summary = msgspec.json.Decoder(ProcessSummary).decode


def add_process(tx: Transaction, process: BackgroundProcess) -> None:
    """Store a new process; raises `StoreConflict` if its id is taken."""
    if not tx.processes.add(_to_row(process)):
        raise StoreConflict(f"process {process.id} already exists")
    tx.notify(PROCESS_STATES)


def change_process(tx: Transaction, process: BackgroundProcess, **changes: Any) -> BackgroundProcess | None:
    """Change some fields and return the result; ``None`` if it no longer exists."""
    row = tx.processes.get(process.id)
    if row is None:
        return None
    changed = structs.replace(_decode(row.body), **changes)
    if not tx.processes.replace(_to_row(changed, row.version)):
        raise StoreConflict(f"process {process.id} was changed by another worker")
    if changes.get("ended_by"):
        tx.notify(PROCESSES)
    if "state" in changes:
        tx.notify(PROCESS_STATES)
    return changed


def end_processes(tx: Transaction, session_id: SessionId) -> None:
    """Request the end of a closed session's processes, by the worker that watches them, now or after the next start."""
    for process in list_processes(tx, session_id):
        if process.is_alive and not process.ended_by:
            change_process(tx, process, ended_by="conversation")


def list_process_summaries(tx: Transaction) -> list[ProcessSummary]:
    """Return the running processes in summary form.

    Processes of a deleted session are to be ended.
    """
    alive = [_decode_summary(row.body) for row in tx.processes.find(alive=True)]
    deleted = {one for one in {summary.session_id for summary in alive} if tx.sessions.get(one) is None}
    return [
        structs.replace(summary, ended_by="conversation") if summary.session_id in deleted else summary
        for summary in alive
    ]


def read_process(tx: Transaction, process: BackgroundProcess | ProcessSummary) -> BackgroundProcess | None:
    """Return the current state of a process; ``None`` if it no longer exists."""
    row = tx.processes.get(process.id)
    return _decode(row.body) if row else None


def forget_process(tx: Transaction, process: BackgroundProcess) -> None:
    """Delete the record of a process."""
    tx.processes.delete(process.id)


def list_processes(tx: Transaction, session_id: SessionId | None = None) -> list[BackgroundProcess]:
    """Return the processes of a session or of all, oldest first; ended ones stay listed for some days."""
    found = [_decode(row.body) for row in tx.processes.find(session_id)]
    return sorted(found, key=lambda process: (process.begun_at, process.id))


def find_process(tx: Transaction, part: str) -> BackgroundProcess:
    """Return the process with this id or id prefix."""
    found = [_decode(row.body) for row in tx.processes.with_prefix(part)] if part else []
    exact = [process for process in found if process.id == part] or found
    if len(exact) > 1:
        raise Ambiguous(f"`{part}` matches several processes: {', '.join(process.id for process in exact)}.")
    if not exact:
        raise NotFound(f"There is no background process `{part}`.")
    return exact[0]


def process_label(process: BackgroundProcess) -> str:
    """Return the start of a sentence about a process."""
    command = " ".join(process.command.split())
    short = command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 1] + "…"
    return f"Background process {process.id} ({short})"


def describe_outcome(process: BackgroundProcess) -> str:
    """Return how it ended, or that it is running, as the rest of a sentence."""
    match process.state:
        case "starting" | "running":
            return f"has been running for {format_duration(process)}"
        case "ended":
            return f"ended with {describe_exit_code(process.code or 0)} after {format_duration(process)}"
        case "killed":
            return f"was killed after {format_duration(process)}"
        case "lost":
            return f"disappeared without an exit code, after at most {format_duration(process)}"


def describe_exit_code(code: int) -> str:
    """Return an exit code with the signal it stands for."""
    try:
        return f"exit code {code} ({signal.Signals(code - _SIGNALLED).name})"
    except ValueError:
        return f"exit code {code}"


def format_duration(process: BackgroundProcess, now: datetime | None = None) -> str:
    """Return how long it has been running."""
    seconds = round(((process.ended_at or now or datetime.now(UTC)) - process.begun_at) / timedelta(seconds=1))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _to_row(process: BackgroundProcess, version: int = 0) -> ProcessRow:
    return ProcessRow(
        id=process.id,
        session_id=process.session_id,
        alive=process.is_alive,
        body=_encode(process).decode(),
        version=version,
    )


def describe_state(process: BackgroundProcess) -> str:
    """Return the state of a process; the exit code may be unknown if it ended unobserved."""
    if process.state == "ended":
        return describe_exit_code(process.code or 0)
    if not process.is_alive:
        return process.state
    if process.machine != machine_id():
        return f"on {process.host}"
    is_gone = process.pid and not is_same_process(process.pid, process.started, process.machine)
    return "unreported" if is_gone else "running"


def last_line(process: BackgroundProcess) -> str:
    """Return the last line of the output."""
    return process.last_line if not process.is_alive else read_tail(process, 4096).rpartition("\n")[2]


def read_tail(process: BackgroundProcess, limit: int = TAIL_BYTES) -> str:
    """Return the end of the output, as far as it is stored on this machine."""
    try:
        with output_file(process).open("rb") as file:
            file.seek(max(0, output_file(process).stat().st_size - limit))
            return file.read(limit).decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
    except OSError:
        return ""


def output_file(process: BackgroundProcess) -> Path:
    """Return the file of the output."""
    return Path(process.files_folder, "out")
