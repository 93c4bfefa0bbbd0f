"""`talaria cron` actions that add, change, pause, resume and remove jobs."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from talaria.cli.commands.cron.job_context import ASKER, build_rules, note_missing_gateway
from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import CRON, HOME, Job, JobRequest, JobView
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.runtime.workers import is_gateway_alive
from talaria.schedule.job import read_job
from talaria.schedule.job_service import NO_GATEWAY, find_job_problems
from talaria.schedule.job_store import add_job, build_job_view, change_job, remove_job

_SOURCE_VARIABLE = "TALARIA_SESSION_SOURCE"


def add(arguments: argparse.Namespace, services: Services) -> int:
    """Create a job."""
    if services.environment.get(_SOURCE_VARIABLE) == CRON:
        raise Refused("A scheduled job can't create other jobs.")
    request = _build_request(arguments)
    if request.deliver is None:
        request = _build_request(arguments, deliver=(HOME,))
    now, by = SystemClock().now(), build_rules(services)
    return _write_change(arguments, services, lambda tx: add_job(tx, request, ASKER, by, now))


def edit(arguments: argparse.Namespace, services: Services) -> int:
    """Change the given fields of a job."""
    request = _build_request(arguments)
    if request == JobRequest():
        raise Refused("Nothing to change. `talaria help cron edit` lists the options.")
    return _change(arguments, services, request)


def pause(arguments: argparse.Namespace, services: Services) -> int:
    """Pause a job."""
    return _change(arguments, services, JobRequest(paused=True))


def resume(arguments: argparse.Namespace, services: Services) -> int:
    """Resume a paused job."""
    return _change(arguments, services, JobRequest(paused=False))


def remove(arguments: argparse.Namespace, services: Services) -> int:
    """Remove a job."""
    with services.open_database() as database:
        job = database.write(lambda tx: remove_job(tx, arguments.job, ASKER))
    if arguments.json:
        services.terminal.json(build_job_view(read_job(job)))
    else:
        services.terminal.line(f"Removed {job.name}.")
    return 0


def _change(arguments: argparse.Namespace, services: Services, request: JobRequest) -> int:
    now, by = SystemClock().now(), build_rules(services)
    return _write_change(arguments, services, lambda tx: change_job(tx, arguments.job, request, ASKER, by, now))


def _write_change(arguments: argparse.Namespace, services: Services, work: Callable[[Transaction], Job]) -> int:
    networks = services.networks().targets()

    def changed(tx: Transaction) -> tuple[JobView, bool]:
        job = read_job(work(tx))
        return build_job_view(job, find_job_problems(tx, job, networks)), is_gateway_alive(tx)

    with services.open_database() as database:
        shown, has_gateway = database.write(changed)
    if arguments.json:
        services.terminal.json(shown)
        return 0
    services.terminal.line(
        f"{shown.id}  {shown.name}: {shown.schedule}, {_describe_next(shown.next_told, shown.state)}"
    )
    note_missing_gateway(services, has_gateway=has_gateway)
    for remark in shown.remarks:
        if remark != NO_GATEWAY:
            services.terminal.note(remark)
    return 0


def _describe_next(next_due: str, state: str) -> str:
    return f"next {next_due}" if next_due else state


def _build_request(arguments: argparse.Namespace, deliver: tuple[str, ...] | None = None) -> JobRequest:
    folder = str(Path(arguments.folder).expanduser().absolute()) if arguments.folder else arguments.folder
    return JobRequest(
        when=arguments.when,
        prompt=sys.stdin.read() if arguments.prompt == "-" else arguments.prompt,
        name=arguments.name,
        skills=tuple(arguments.skill) if arguments.skill is not None else None,
        model=arguments.model,
        folder=folder,
        script=arguments.script,
        times=arguments.times,
        deliver=deliver or (tuple(arguments.deliver) if arguments.deliver is not None else None),
        zone=arguments.zone,
        catch_up=arguments.catch_up,
        dollars=arguments.dollars,
    )
