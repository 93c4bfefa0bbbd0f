"""`talaria cron` actions that list, show, add, change, pause, resume and remove jobs."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import CRON, HOME, Job, JobRequest, JobRequester, JobView, RunView
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.runtime.workers import is_gateway_alive
from talaria.schedule.job import read_job
from talaria.schedule.job_service import NO_GATEWAY, find_job_problems
from talaria.schedule.job_store import (
    HEARTBEAT,
    JobRules,
    add_job,
    build_job_view,
    build_run_view,
    change_job,
    find_job,
    remove_job,
)
from talaria.schedule.recurrence import system_zone

_OUTPUT_LIMIT = 60
_SOURCE_VARIABLE = "TALARIA_SESSION_SOURCE"
ASKER = JobRequester(everyone=True)
_JOBS_NOT_STARTED = (
    "No gateway is running, so jobs won't start. Run `talaria gateway start`, or have the "
    "system's cron call `talaria cron run-due` every minute."
)


def list_jobs(arguments: argparse.Namespace, services: Services) -> int:
    """List the owner's jobs that have not ended, or all jobs."""
    with services.open_database() as database:
        found, has_gateway = database.read(lambda tx: (_list_jobs(tx), is_gateway_alive(tx)))
    jobs = found if arguments.all else [one for one in found if one.state != "over" and not one.owner]
    if arguments.json:
        services.terminal.json(jobs)
        return 0
    if jobs:
        rows = [(one.id, one.name, one.schedule, one.next_told or one.state, ", ".join(one.deliver)) for one in jobs]
        services.terminal.table(("JOB", "NAME", "WHEN", "NEXT", "REPORTS TO"), rows)
        note_missing_gateway(services, has_gateway=has_gateway)
    elif services.terminal.interactive:
        services.terminal.note(
            "Nothing is scheduled. Add a job: `talaria cron add 'every monday 9:00' 'Water the plants.'`"
        )
    return 0


def show_job(arguments: argparse.Namespace, services: Services) -> int:
    """Show the details of a job."""
    with services.open_database() as database:
        job, has_gateway = database.read(
            lambda tx: (build_job_view(find_job(tx, arguments.job, ASKER)), is_gateway_alive(tx))
        )
    if arguments.json:
        services.terminal.json(job)
        return 0
    for name, value in {"name": job.name, **job.facts}.items():
        services.terminal.line(f"{name:<11} {value}")
    note_missing_gateway(services, has_gateway=has_gateway)
    return 0


def show_history(arguments: argparse.Namespace, services: Services) -> int:
    """Show the latest runs of a job, newest first."""

    def read(tx: Transaction) -> list[RunView]:
        found = find_job(tx, arguments.job, ASKER)
        return [build_run_view(run, found.plan.zone) for run in tx.jobs.runs(found.job.id, arguments.limit)]

    with services.open_database() as database:
        runs = database.read(read)
    if arguments.json:
        services.terminal.json(runs)
        return 0
    rows = [(one.due_told, one.state, one.session_id or "", _format_output(one.output)) for one in runs]
    services.terminal.table(("DUE", "STATE", "SESSION", "SAID"), rows)
    return 0


def _list_jobs(tx: Transaction) -> list[JobView]:
    return [build_job_view(read_job(job)) for job in tx.jobs.find() if job.id != HEARTBEAT]


def _format_output(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _OUTPUT_LIMIT else f"{flat[: _OUTPUT_LIMIT - 1]}…"


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


def build_rules(services: Services) -> JobRules:
    """Return the time zone and the networks of the profile."""
    zone = services.settings().cli.time_zone or system_zone(services.environment)
    return JobRules(zone, tuple(services.networks().targets()))


def note_missing_gateway(services: Services, *, has_gateway: bool) -> None:
    """Print a note if no gateway is running, or if it does not start jobs."""
    if not has_gateway:
        services.terminal.note(_JOBS_NOT_STARTED)
    elif not services.settings().schedule.enabled:
        services.terminal.note(
            "The gateway doesn't start jobs because `schedule.enabled` is off. Run `talaria "
            "config set schedule.enabled true`."
        )
