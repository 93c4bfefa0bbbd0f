"""Jobs and their runs are shown."""

import argparse

from talaria.cli.cron_actions.jobs import ASKER, tell_of_gateway
from talaria.cli.services import Services
from talaria.contracts.schedules import JobView, RunView
from talaria.contracts.store import Transaction
from talaria.schedule.keeping import HEARTBEAT, find_job, view, view_run
from talaria.schedule.plan import read_job
from talaria.sessions.homes import gateway_alive

_SHOWN = 60


def list_jobs(arguments: argparse.Namespace, services: Services) -> int:
    """List those that are still due some time, or all of them."""
    with services.open_database() as database:
        found, served = database.read(lambda tx: (_jobs(tx), gateway_alive(tx)))
    jobs = found if arguments.all else [one for one in found if one.state != "over" and not one.owner]
    if arguments.json:
        services.terminal.json(jobs)
        return 0
    if jobs:
        rows = [(one.id, one.name, one.schedule, one.next_told or one.state, ", ".join(one.deliver)) for one in jobs]
        services.terminal.table(("JOB", "NAME", "WHEN", "NEXT", "REPORTS TO"), rows)
        tell_of_gateway(services, served=served)
    elif services.terminal.interactive:
        services.terminal.note("Nothing is scheduled: `talaria cron add 'every monday 9:00' 'Water the plants.'`")
    return 0


def show_job(arguments: argparse.Namespace, services: Services) -> int:
    """Show all about one."""
    with services.open_database() as database:
        job, served = database.read(lambda tx: (view(find_job(tx, arguments.job, ASKER)), gateway_alive(tx)))
    if arguments.json:
        services.terminal.json(job)
        return 0
    for name, value in {"name": job.name, **job.facts}.items():
        services.terminal.line(f"{name:<11} {value}")
    tell_of_gateway(services, served=served)
    return 0


def show_history(arguments: argparse.Namespace, services: Services) -> int:
    """Show the latest runs of a job, the last one first."""

    def read(tx: Transaction) -> list[RunView]:
        found = find_job(tx, arguments.job, ASKER)
        return [view_run(run, found.plan.zone) for run in tx.jobs.runs(found.job.id, arguments.limit)]

    with services.open_database() as database:
        runs = database.read(read)
    if arguments.json:
        services.terminal.json(runs)
        return 0
    rows = [(one.due_told, one.state, one.session_id or "", _line(one.output)) for one in runs]
    services.terminal.table(("DUE", "STATE", "SESSION", "SAID"), rows)
    return 0


def _jobs(tx: Transaction) -> list[JobView]:
    return [view(read_job(job)) for job in tx.jobs.find() if job.id != HEARTBEAT]


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…"
