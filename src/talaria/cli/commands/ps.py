"""`talaria ps`: list background processes of sessions, on this machine and others."""

import argparse
import signal
import time
from datetime import UTC, datetime

from msgspec import Struct

from talaria.cli.services import Services
from talaria.contracts.background_processes import (
    COOKIE,
    BackgroundProcess,
    change_process,
    describe_state,
    find_process,
    format_duration,
    last_line,
    list_processes,
    output_file,
    read_tail,
)
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.core.os_processes import is_same_process, kill_tree, list_process_tree, machine_id, signal_all

_GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.05
_LONGEST_COMMAND = 40
_LONGEST_LINE = 60


class ProcessEntry(Struct, frozen=True, kw_only=True):
    """Process as printed by `--json`."""

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
    parser.add_argument("--all", action="store_true", help="include finished processes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    kill = actions.add_parser("kill", help="stop a process and everything it started")
    log = actions.add_parser("log", help="print the output of a process")
    log.add_argument("--lines", metavar="N", type=int, default=100, help="number of lines from the end (default: 100)")
    for action in (kill, log):
        action.add_argument("id", metavar="ID", help="the process's id, or the start of it")


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
        found = database.read(_list_with_titles)
    shown = [one for one in found if arguments.all or one[0].is_alive]
    if arguments.json:
        services.terminal.json([_build_entry(process, title) for process, title in shown])
        return
    now = datetime.now(UTC)
    rows = [
        (
            process.id,
            title or process.session_id,
            process.pid or "",
            format_duration(process, now),
            describe_state(process),
            _shorten(process.command, _LONGEST_COMMAND),
            _shorten(last_line(process), _LONGEST_LINE),
        )
        for process, title in shown
    ]
    services.terminal.table(("ID", "SESSION", "PID", "AGE", "STATE", "COMMAND", "LAST LINE"), rows)
    if not rows and services.terminal.interactive:
        services.terminal.note("No background processes are running." + (" `--all` lists finished ones." * bool(found)))


def _kill(id_prefix: str, services: Services) -> None:
    with services.open_database() as database:
        process = database.read(lambda tx: find_process(tx, id_prefix))
        if not process.is_alive:
            raise Refused(f"{process.id} has already ended.")
        database.write(lambda tx: change_process(tx, process, ended_by="person"))
    if process.machine != machine_id():
        services.terminal.note(f"{process.id} runs on {process.host}. The gateway there will stop it.")
        return
    if is_same_process(process.pid, process.started, process.machine):
        _end_tree(process)
    services.terminal.note(f"Stopped {process.id} and everything it started.")


def _end_tree(process: BackgroundProcess) -> None:
    cookie = f"{COOKIE}={process.id}"
    signal_all(list_process_tree(process.pid, cookie), signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while list_process_tree(process.pid, cookie) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    kill_tree(process.pid, cookie)


def _print_log(id_prefix: str, lines: int, services: Services) -> None:
    with services.open_database() as database:
        process = database.read(lambda tx: find_process(tx, id_prefix))
    if not output_file(process).exists():
        raise Refused(f"The output of {process.id} is on {process.host}, in {output_file(process)}.")
    services.terminal.document("\n".join(read_tail(process).split("\n")[-lines:]) + "\n")


def _list_with_titles(tx: Transaction) -> list[tuple[BackgroundProcess, str]]:
    titles: dict[str, str] = {}
    for process in (found := list_processes(tx)):
        if process.session_id not in titles:
            session = tx.sessions.get(process.session_id)
            titles[process.session_id] = session.title if session else ""
    return [(process, titles[process.session_id]) for process in found]


def _build_entry(process: BackgroundProcess, title: str) -> ProcessEntry:
    return ProcessEntry(
        id=process.id,
        session=process.session_id,
        title=title,
        command=process.command,
        folder=process.folder,
        state=describe_state(process) if process.is_alive else process.state,
        code=process.code,
        pid=process.pid,
        host=process.host,
        begun_at=process.begun_at,
        ended_at=process.ended_at,
        last_line=last_line(process),
        log=str(output_file(process)),
    )


def _shorten(text: str, limit: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"
