"""`talaria ps`: what conversations have running in the background, on this machine and elsewhere."""

import argparse
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from talaria.cli.services import Services
from talaria.contracts.processes import (
    COOKIE,
    BackgroundProcess,
    change_process,
    find_process,
    in_words,
    lasted,
    list_processes,
)
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.core.system_processes import is_same, kill_tree, signal_all, this_machine, tree_of

_GRACE = 3.0
_LOOK_AGAIN = 0.05
_TAIL = 1_048_576
_LONGEST_COMMAND = 40
_LONGEST_LINE = 60


class Line(Struct, frozen=True, kw_only=True):
    """What `--json` prints of a process."""

    id: str
    session: str
    title: str
    command: str
    folder: str
    state: str
    code: int | None
    pid: int
    host: str
    begun_at: datetime
    ended_at: datetime | None
    last_line: str
    log: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.add_argument("--all", action="store_true", help="finished processes too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    ending = actions.add_parser("kill", help="end a process and all that it started")
    log = actions.add_parser("log", help="print the output of a process")
    log.add_argument("--lines", metavar="N", type=int, default=100, help="from its end (default: 100)")
    for action in (ending, log):
        action.add_argument("id", metavar="ID", help="the process, or how its id begins")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    if arguments.action == "kill":
        _kill(arguments.id, services)
    elif arguments.action == "log":
        _print_log(arguments.id, arguments.lines, services)
    else:
        _list(arguments, services)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        found = database.read(_titled)
    wanted = [one for one in found if arguments.all or one[0].is_alive]
    if arguments.json:
        services.terminal.json([_line(process, title) for process, title in wanted])
        return
    now = datetime.now(UTC)
    rows = [
        (
            process.id,
            title or process.session_id,
            process.pid or "",
            lasted(process, now),
            _state(process),
            _cut(process.command, _LONGEST_COMMAND),
            _cut(_last_line(process), _LONGEST_LINE),
        )
        for process, title in wanted
    ]
    services.terminal.table(("ID", "SESSION", "PID", "AGE", "STATE", "COMMAND", "LAST LINE"), rows)
    if not rows and services.terminal.interactive:
        services.terminal.note("Nothing runs in the background." + (" `--all` lists what has ended." * bool(found)))


def _kill(part: str, services: Services) -> None:
    with services.open_database() as database:
        process = database.read(lambda tx: find_process(tx, part))
        if not process.is_alive:
            raise Refused(f"{process.id} has ended already.")
        database.write(lambda tx: change_process(tx, process, ended_by="person"))
    if process.machine != this_machine():
        services.terminal.note(
            f"{process.id} runs on {process.host}; it will be stopped by the process that watches it there."
        )
        return
    if is_same(process.pid, process.started, process.machine):
        _end_tree(process)
    services.terminal.note(f"{process.id} is ended, with all that it had started.")


def _end_tree(process: BackgroundProcess) -> None:
    cookie = f"{COOKIE}={process.id}"
    signal_all(tree_of(process.pid, cookie), signal.SIGTERM)
    until = time.monotonic() + _GRACE
    while tree_of(process.pid, cookie) and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN)
    kill_tree(process.pid, cookie)


def _print_log(part: str, lines: int, services: Services) -> None:
    with services.open_database() as database:
        process = database.read(lambda tx: find_process(tx, part))
    if not _log_of(process).exists():
        raise Refused(f"What {process.id} printed is kept on {process.host}, in {_log_of(process)}.")
    services.terminal.document("\n".join(_tail(process).split("\n")[-lines:]) + "\n")


def _titled(tx: Transaction) -> list[tuple[BackgroundProcess, str]]:
    titles: dict[str, str] = {}
    for process in (found := list_processes(tx)):
        if process.session_id not in titles:
            session = tx.sessions.get(process.session_id)
            titles[process.session_id] = session.title if session else ""
    return [(process, titles[process.session_id]) for process in found]


def _line(process: BackgroundProcess, title: str) -> Line:
    return Line(
        id=process.id,
        session=process.session_id,
        title=title,
        command=process.command,
        folder=process.folder,
        state=_state(process) if process.is_alive else process.state,
        code=process.code,
        pid=process.pid,
        host=process.host,
        begun_at=process.begun_at,
        ended_at=process.ended_at,
        last_line=_last_line(process),
        log=str(_log_of(process)),
    )


def _state(process: BackgroundProcess) -> str:
    """Return how it is; of one that ended while nobody watched only that is known yet."""
    if process.state == "ended":
        return in_words(process.code or 0)
    if not process.is_alive:
        return process.state
    if process.machine != this_machine():
        return f"on {process.host}"
    over = process.pid and not is_same(process.pid, process.started, process.machine)
    return "unreported" if over else "running"


def _last_line(process: BackgroundProcess) -> str:
    return process.last_line if not process.is_alive else _tail(process, 4096).rpartition("\n")[2]


def _tail(process: BackgroundProcess, most: int = _TAIL) -> str:
    """Return the last part of what it printed, as far as it is kept here."""
    try:
        with _log_of(process).open("rb") as file:
            file.seek(max(0, _log_of(process).stat().st_size - most))
            return file.read(most).decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
    except OSError:
        return ""


def _log_of(process: BackgroundProcess) -> Path:
    return Path(process.place, "out")


def _cut(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"
