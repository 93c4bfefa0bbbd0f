"""`talaria cron` actions that show jobs and their runs."""

import argparse

from talaria.cli.commands.cron.job_context import ASKER, note_missing_gateway
from talaria.cli.services import Services
from talaria.contracts.jobs import JobView, RunView
from talaria.contracts.store import Transaction
from talaria.runtime.workers import is_gateway_alive
from talaria.schedule.job import read_job
from talaria.schedule.job_store import HEARTBEAT, build_job_view, build_run_view, find_job

_OUTPUT_LIMIT = 60


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
