"""Jobs are run: by a gateway where there is one, else in this process."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack

from talaria.cli.cron_actions.jobs import ASKER
from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.jobs import JobRun
from talaria.core.ids import JobId
from talaria.schedule import due
from talaria.schedule.keeping import find_job, view_run
from talaria.sessions.company import first_error
from talaria.sessions.homes import gateway_alive


def run_now(arguments: argparse.Namespace, services: Services) -> int:
    """Let a job run: a gateway takes it up, and without one it is run here."""
    now = SystemClock().now()

    def begin(tx: Transaction) -> tuple[JobId, str, bool]:
        found = find_job(tx, arguments.job, ASKER)
        due.run_now(tx, arguments.job, ASKER, now)
        return found.job.id, found.plan.zone, gateway_alive(tx)

    with services.open_database() as database:
        job_id, zone, served = database.write(begin)
    if served and services.settings().schedule.enabled:
        services.terminal.line("The gateway runs it; `talaria cron history` shows what comes of it.")
        return 0
    _work_off(services, job_id)
    with services.open_database() as database:
        runs = database.read(lambda tx: tx.jobs.runs(job_id, 1))
    return _told(arguments, services, runs[0], zone)


def run_due(arguments: argparse.Namespace, services: Services) -> int:
    """Run what is due, and what was cut off."""
    count = _work_off(services, "")
    if arguments.json:
        services.terminal.json({"runs": count})
    elif services.terminal.interactive:
        services.terminal.note(f"{count} runs." if count != 1 else "1 run.")
    return 0


def _work_off(services: Services, only: str) -> int:
    try:
        return asyncio.run(_worked_off(services, only))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _worked_off(services: Services, only: str) -> int:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as stack:
        house = services.load_house()(stack)
        return await house.work_off_jobs(only)


def _told(arguments: argparse.Namespace, services: Services, run: JobRun, zone: str) -> int:
    shown = view_run(run, zone)
    if arguments.json:
        services.terminal.json(shown)
    elif shown.output:
        services.terminal.line(shown.output)
    return 0 if run.state == "done" else 1
