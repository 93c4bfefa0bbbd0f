"""`talaria gateway`: run the chat gateway, check its status, and find or stop its processes."""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from talaria.access.policy import list_open_access
from talaria.cli.commands.gateway.service_units import (
    ServiceFile,
    ServiceProgram,
    build_service_file,
    install,
    uninstall,
)
from talaria.cli.server_process import open_server_application
from talaria.cli.services import Services
from talaria.core.aio import StopSignal, first_error
from talaria.core.errors import Refused, StoreError, StoreUnavailable
from talaria.core.files import person_umask, restore_umask
from talaria.core.formatting import format_age, pluralize
from talaria.core.ids import WorkerId, is_gone
from talaria.core.installation import own_command, restart_command
from talaria.observability.shutdown_report import ShutdownReport, list_running, read_last_report
from talaria.runtime.workers import ModelStatus, NetworkStatus, WorkerStatus, decode_worker, read_workers

_STATUS_SECONDS = 3.0
_CHANGE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_DEFAULT_LINES = 40
_SIGNALS = {
    signal.SIGTERM: "SIGTERM (`talaria gateway stop`, the service manager, or kill)",
    signal.SIGINT: "SIGINT (Ctrl-C)",
    signal.SIGHUP: "SIGHUP (its terminal was closed)",
}


def find_processes(services: Services) -> tuple[list[WorkerStatus], str]:
    """Return the live processes, oldest first, and the store's error if it cannot be read.

    A SQLite file is not opened if a process on this machine answers: its answer is more recent, and if the file was
    replaced, opening it would do harm.
    """
    here = list_running(services.profile.logs_folder)
    answers = {one.pid: _fetch_status(one) for one in here}
    stored: list[WorkerStatus] = []
    problem = ""
    if services.settings().store.url or not any(answers.values()):
        try:
            stored = _read_stored(services)
        except StoreError as error:
            problem = str(error)
    found = {one.worker: one for one in stored}
    for one in here:
        answer = answers[one.pid]
        last_stored = found.get(WorkerId(one.worker))
        found[WorkerId(one.worker)] = answer or structs.replace(
            last_stored or _build_unreachable_status(one), error=_describe_silent(one)
        )
    return sorted(found.values(), key=lambda one: one.started), problem


def _read_stored(services: Services) -> list[WorkerStatus]:
    with services.open_database() as database:
        return database.read(read_workers)


def _fetch_status(process: ShutdownReport) -> WorkerStatus | None:
    """Return the status that a process reports; ``None`` if it does not answer."""
    connection = HTTPConnection(urlsplit(process.address).netloc or "127.0.0.1:0", timeout=_STATUS_SECONDS)
    try:
        connection.request("GET", "/status")
        return decode_worker(connection.getresponse().read())
    except (OSError, HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()


def _build_unreachable_status(process: ShutdownReport) -> WorkerStatus:
    return WorkerStatus(
        worker=WorkerId(process.worker),
        pid=process.pid,
        host=os.uname().nodename,
        started=process.started,
        at=process.started,
        version=process.version,
        address=process.address,
    )


def _describe_silent(process: ShutdownReport) -> str:
    return f"Process {process.pid} is running, but its status at {process.address or 'any address'} can't be read."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="status")
    run_ = actions.add_parser("run", help="run in the foreground until Ctrl-C")
    run_.add_argument("--worker", action="store_true", help="join a gateway that is already running, here or elsewhere")
    actions.add_parser("start", help="start in the background")
    actions.add_parser("stop", help="stop the gateway; running turns may finish first")
    actions.add_parser("restart", help="restart the gateway; unfinished turns resume")
    status = actions.add_parser("status", help="show processes, networks and queues; exits with 1 if none is running")
    status.add_argument("--json", action="store_true", help="print JSON")
    install_ = actions.add_parser(
        "install", help="install as a service that starts at login and restarts after a failure"
    )
    install_.add_argument(
        "--print", action="store_true", dest="only_print", help="print the service file without writing it"
    )
    actions.add_parser("uninstall", help="stop and remove the service")
    manifest = actions.add_parser("slack-manifest", help="print the manifest for a Slack app, to paste into Slack")
    manifest.add_argument("--assistant", action="store_true", help="for an app in Slack's assistant panel")
    logs = actions.add_parser("logs", help="print the end of the log")
    logs.add_argument(
        "-n",
        "--lines",
        type=int,
        default=_DEFAULT_LINES,
        metavar="N",
        help=f"number of lines (default {_DEFAULT_LINES})",
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services)


def _run(arguments: argparse.Namespace, services: Services) -> int:
    stop = StopSignal()
    try:
        asyncio.run(_serve(services, stop, as_worker=arguments.worker))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    if stop.restarts:
        sys.stdout.flush()
        restore_umask()
        command = restart_command()
        os.execve(command[0], command, dict(services.environment))  # noqa: S606 (our own command)
    return 0


async def _serve(services: Services, stop: StopSignal, *, as_worker: bool) -> None:
    async with open_server_application(services, stop, _SIGNALS) as (application, manager):
        if application is None:
            return
        _report_last_shutdown(services, services.terminal.note)

        def report(text: str) -> None:
            services.terminal.note(text)
            manager.report_ready(text)

        await application.serve_gateway(stop, as_worker=as_worker, report=report)


def _start(_arguments: argparse.Namespace, services: Services) -> int:
    if _list_workers(services):
        raise Refused("A gateway is already running. `talaria gateway status` shows it.")
    services.profile.prepare()
    _report_last_shutdown(services, services.terminal.note)
    log = services.profile.logs_folder / "gateway.out"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            _build_command(services),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=services.environment,
            umask=person_umask(),
        )
    deadline = time.monotonic() + _CHANGE_SECONDS
    while not any(one.pid == process.pid for one in _list_workers(services)):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise Refused(f"The gateway didn't start. Its log ends with:\n{_read_tail(log, 5)}")
        time.sleep(_POLL_SECONDS)
    services.terminal.line(f"The gateway is running as process {process.pid}.")
    return 0


def _stop(_arguments: argparse.Namespace, services: Services) -> int:
    local_workers = [one for one in _list_workers(services) if one.host == os.uname().nodename]
    if not local_workers:
        raise Refused("No gateway of this profile is running on this machine.")
    for one in local_workers:
        os.kill(one.pid, signal.SIGTERM)
    deadline = time.monotonic() + _CHANGE_SECONDS
    while not all(is_gone(one.worker) for one in local_workers):
        if time.monotonic() > deadline:
            raise Refused(
                "The gateway hasn't stopped yet; running turns may take longer. Try again, or kill its process."
            )
        time.sleep(_POLL_SECONDS)
    services.terminal.line("The gateway has stopped.")
    return 0


def _restart(arguments: argparse.Namespace, services: Services) -> int:
    if _list_workers(services):
        _stop(arguments, services)
    return _start(arguments, services)


def _show_status(arguments: argparse.Namespace, services: Services) -> int:
    workers, problem = find_processes(services)
    if problem and not workers:
        raise StoreUnavailable(problem)
    if arguments.json:
        services.terminal.json(workers)
        return 0 if workers else 1
    if not workers:
        services.terminal.line("No gateway is running. Start one with `talaria gateway start`.")
        _report_last_shutdown(services, services.terminal.line)
        return 1
    for one in workers:
        services.terminal.line(
            f"Process {one.pid} on {one.host}, started {format_age(one.started, datetime.now(UTC))},"
            f" version {one.version}"
        )
        services.terminal.line(
            f"{pluralize(one.open_sessions, 'conversation')} open, {pluralize(one.turns, 'turn')} running,"
            f" {pluralize(one.waiting, 'message')} waiting for a turn,"
            f" {one.undelivered} {'reply' if one.undelivered == 1 else 'replies'} waiting for delivery"
        )
        if one.address:
            services.terminal.line(f"More for programs: {one.address}/health, /ready, /metrics and /status")
        for sentence in (one.error, *map(_describe_model, one.models)):
            if sentence:
                services.terminal.line(services.terminal.style(sentence, "yellow"))
        services.terminal.table(
            ("NETWORK", "STATE", "SINCE", "RECEIVED", "PROBLEM"), [_format_network(net) for net in one.networks]
        )
    for sentence in (*([problem] if problem else []), *list_open_access(services.settings())):
        services.terminal.line(services.terminal.style(sentence, "yellow"))
    _report_last_shutdown(services, services.terminal.line)
    return 0


def _show_logs(arguments: argparse.Namespace, services: Services) -> int:
    services.terminal.document(_read_tail(services.profile.logs_folder / "talaria.log", arguments.lines) + "\n")
    return 0


def _print_slack_manifest(arguments: argparse.Namespace, services: Services) -> int:
    services.terminal.json(services.networks().slack_manifest(assistant=arguments.assistant))
    return 0


def _install(arguments: argparse.Namespace, services: Services) -> int:
    service = _build_service(services)
    if arguments.only_print:
        services.terminal.document(service.text)
        return 0
    if any(one.host == os.uname().nodename for one in _list_workers(services)):
        raise Refused("A gateway is running. Stop it with `talaria gateway stop`, then install the service.")
    services.terminal.line(install(service, services.environment))
    return 0


def _uninstall(_arguments: argparse.Namespace, services: Services) -> int:
    services.terminal.line(uninstall(_build_service(services), services.environment))
    return 0


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int]] = {
    "run": _run,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "status": _show_status,
    "install": _install,
    "uninstall": _uninstall,
    "slack-manifest": _print_slack_manifest,
    "logs": _show_logs,
}


def _list_workers(services: Services) -> list[WorkerStatus]:
    workers, problem = find_processes(services)
    if problem and not workers:
        raise StoreUnavailable(problem)
    return workers


def _describe_model(model: ModelStatus) -> str:
    since = format_age(model.since, datetime.now(UTC)) if model.since else "just now"
    return f"The model {model.name} isn't answering (first noticed {since}): {model.error}"


def _report_last_shutdown(services: Services, tell: Callable[[str], None]) -> None:
    last = read_last_report(services.profile.logs_folder)
    if last is not None:
        tell(last.describe(datetime.now(UTC)))


def _build_service(services: Services) -> ServiceFile:
    """Return the service of this profile; of the environment it keeps where things are, and never a secret."""
    variables = {key: services.environment[key] for key in ("PATH",) if key in services.environment}
    program = ServiceProgram(
        profile=services.profile.name,
        command=_build_command(services),
        environment={**variables, "TALARIA_HOME": str(services.profiles.home)},
        drain_seconds=services.settings().gateway.drain_seconds,
    )
    return build_service_file(program, services.environment, system=sys.platform)


def _build_command(services: Services) -> tuple[str, ...]:
    return *own_command(), "-p", services.profile.name, "gateway", "run"


def _format_network(network: NetworkStatus) -> tuple[object, ...]:
    return (
        network.name,
        network.state,
        format_age(network.since, datetime.now(UTC)) if network.since else "",
        network.received,
        network.error,
    )


def _read_tail(file: Path, count: int) -> str:
    nothing = "The log is empty."
    try:
        return "\n".join(file.read_text(errors="replace").splitlines()[-count:]) or nothing
    except FileNotFoundError:
        return nothing
