"""`talaria gateway`: serve the chat networks, and see how that goes."""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from talaria.cli.gateway_processes import find_processes
from talaria.cli.service_files import Program, ServiceFile, install, service_file, uninstall
from talaria.cli.services import Services
from talaria.core.errors import Refused, StoreUnavailable
from talaria.core.ids import is_gone
from talaria.core.umask import person_umask, restore_umask
from talaria.core.wording import ago, counted
from talaria.sessions.company import first_error
from talaria.sessions.ending import Stop, last_ending
from talaria.sessions.presence import ModelStatus, NetworkStatus, WorkerStatus
from talaria.settings.doors import open_doors

_PATIENCE = 60.0
_LOOK_AGAIN = 0.1
_LINES = 40
_SIGNALS = {
    signal.SIGTERM: "SIGTERM (`talaria gateway stop`, the service manager, or kill)",
    signal.SIGINT: "SIGINT (Ctrl-C)",
    signal.SIGHUP: "SIGHUP (its terminal was closed)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run_ = actions.add_parser("run", help="serve in the foreground until Ctrl-C")
    run_.add_argument("--worker", action="store_true", help="help a gateway that runs already, here or elsewhere")
    actions.add_parser("start", help="serve in the background")
    actions.add_parser("stop", help="end it; running turns may end first")
    actions.add_parser("restart", help="restart it; unfinished turns resume")
    status = actions.add_parser("status", help="show processes, networks and queues; exit code 1 if none runs")
    status.add_argument("--json", action="store_true", help="print JSON")
    install_ = actions.add_parser("install", help="start it at each login, and again after a failure")
    install_.add_argument("--print", action="store_true", dest="only_print", help="print the file, and write nothing")
    actions.add_parser("uninstall", help="end that, and remove the file")
    manifest = actions.add_parser("slack-manifest", help="print the manifest of a Slack app, to paste at Slack")
    manifest.add_argument("--assistant", action="store_true", help="an app for Slack's assistant panel")
    logs = actions.add_parser("logs", help="print the end of its log")
    logs.add_argument("-n", "--lines", type=int, default=_LINES, metavar="N", help=f"how many lines (default {_LINES})")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services)


def _run(arguments: argparse.Namespace, services: Services) -> int:
    stop = Stop()
    try:
        asyncio.run(_serve(services, stop, beside=arguments.worker))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    if stop.again:
        sys.stdout.flush()
        restore_umask()
        os.execve(sys.executable, sys.orig_argv, dict(services.environment))  # noqa: S606 (as it was started)
    return 0


async def _serve(services: Services, stop: Stop, *, beside: bool) -> None:
    loop = asyncio.get_running_loop()
    for number, why in _SIGNALS.items():
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, stop.because, why)
    await services.store_care().wait_until_usable(stop, services.terminal.note)
    if stop.is_set():
        return
    async with AsyncExitStack() as stack:
        house = services.load_house()(stack)
        for note in house.notes:
            services.terminal.note(note)
        _tell_last_ending(services, services.terminal.note)
        await house.serve_gateway(stop, beside=beside, report=services.terminal.note)


def _start(_arguments: argparse.Namespace, services: Services) -> int:
    if _workers(services):
        raise Refused("A gateway is running already: `talaria gateway status` shows it.")
    services.profile.prepare()
    _tell_last_ending(services, services.terminal.note)
    log = services.profile.logs_folder / "gateway.out"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            _command(services),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=services.environment,
            umask=person_umask(),
        )
    deadline = time.monotonic() + _PATIENCE
    while not any(one.pid == process.pid for one in _workers(services)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Refused(f"The gateway did not start. It said:\n{_tail(log, 5)}")
        time.sleep(_LOOK_AGAIN)
    services.terminal.line(f"The gateway is running as process {process.pid}.")
    return 0


def _stop(_arguments: argparse.Namespace, services: Services) -> int:
    here = [one for one in _workers(services) if one.host == os.uname().nodename]
    if not here:
        raise Refused("No gateway of this profile runs on this machine.")
    for one in here:
        os.kill(one.pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while not all(is_gone(one.worker) for one in here):
        if time.monotonic() > deadline:
            raise Refused("The gateway does not end: running turns may take longer. Try again, or kill its process.")
        time.sleep(_LOOK_AGAIN)
    services.terminal.line("The gateway has ended.")
    return 0


def _restart(arguments: argparse.Namespace, services: Services) -> int:
    if _workers(services):
        _stop(arguments, services)
    return _start(arguments, services)


def _status(arguments: argparse.Namespace, services: Services) -> int:
    workers, trouble = find_processes(services)
    if trouble and not workers:
        raise StoreUnavailable(trouble)
    if arguments.json:
        services.terminal.json(workers)
        return 0 if workers else 1
    if not workers:
        services.terminal.line("No gateway is running: `talaria gateway start` starts one.")
        _tell_last_ending(services, services.terminal.line)
        return 1
    for one in workers:
        services.terminal.line(
            f"Process {one.pid} on {one.host}, began {ago(one.started, datetime.now(UTC))}, version {one.version}"
        )
        services.terminal.line(
            f"{counted(one.rooms, 'conversation')} open, {counted(one.turns, 'turn')} running,"
            f" {counted(one.waiting, 'message')} waiting for a turn,"
            f" {one.undelivered} {'reply' if one.undelivered == 1 else 'replies'} waiting for delivery"
        )
        if one.address:
            services.terminal.line(f"{one.address}/health, /ready, /metrics and /status tell programs more")
        for sentence in (one.error, *map(_about_model, one.models)):
            if sentence:
                services.terminal.line(services.terminal.styled(sentence, "yellow"))
        services.terminal.table(
            ("Network", "State", "Since", "Received", "Trouble"), [_row(net) for net in one.networks]
        )
    for sentence in (*([trouble] if trouble else []), *open_doors(services.settings())):
        services.terminal.line(services.terminal.styled(sentence, "yellow"))
    _tell_last_ending(services, services.terminal.line)
    return 0


def _logs(arguments: argparse.Namespace, services: Services) -> int:
    services.terminal.document(_tail(services.profile.logs_folder / "talaria.log", arguments.lines) + "\n")
    return 0


def _slack_manifest(arguments: argparse.Namespace, services: Services) -> int:
    services.terminal.json(services.networks().slack_manifest(assistant=arguments.assistant))
    return 0


def _install(arguments: argparse.Namespace, services: Services) -> int:
    service = _service(services)
    if arguments.only_print:
        services.terminal.document(service.text)
        return 0
    if any(one.host == os.uname().nodename for one in _workers(services)):
        raise Refused("A gateway is running: end it with `talaria gateway stop`, then install it.")
    services.terminal.line(install(service, services.environment))
    return 0


def _uninstall(_arguments: argparse.Namespace, services: Services) -> int:
    services.terminal.line(uninstall(_service(services), services.environment))
    return 0


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int]] = {
    "run": _run,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "status": _status,
    "install": _install,
    "uninstall": _uninstall,
    "slack-manifest": _slack_manifest,
    "logs": _logs,
}


def _workers(services: Services) -> list[WorkerStatus]:
    workers, trouble = find_processes(services)
    if trouble and not workers:
        raise StoreUnavailable(trouble)
    return workers


def _about_model(model: ModelStatus) -> str:
    since = ago(model.since, datetime.now(UTC)) if model.since else "just now"
    return f"The model {model.name} does not answer, first {since}: {model.error}"


def _tell_last_ending(services: Services, tell: Callable[[str], None]) -> None:
    last = last_ending(services.profile.logs_folder)
    if last is not None:
        tell(last.told(datetime.now(UTC)))


def _service(services: Services) -> ServiceFile:
    """Return the service of this profile; of the environment it keeps where things are, and never a secret."""
    places = {key: services.environment[key] for key in ("PATH",) if key in services.environment}
    program = Program(
        profile=services.profile.name,
        command=_command(services),
        environment={**places, "TALARIA_HOME": str(services.profiles.home)},
        drain_seconds=services.settings().gateway.drain_seconds,
    )
    return service_file(program, services.environment, system=sys.platform)


def _command(services: Services) -> tuple[str, ...]:
    return sys.executable, "-m", "talaria", "-p", services.profile.name, "gateway", "run"


def _row(network: NetworkStatus) -> tuple[object, ...]:
    return (
        network.name,
        network.state,
        ago(network.since, datetime.now(UTC)) if network.since else "",
        network.received,
        network.error,
    )


def _tail(file: Path, count: int) -> str:
    nothing = "Nothing was written yet."
    try:
        return "\n".join(file.read_text(errors="replace").splitlines()[-count:]) or nothing
    except FileNotFoundError:
        return nothing
