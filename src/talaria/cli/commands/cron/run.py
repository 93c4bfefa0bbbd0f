"""`talaria cron` actions that run jobs, in a gateway or in this process."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack

from talaria.cli.commands.cron.jobs import ASKER
from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import JobRun
from talaria.contracts.store import Transaction
from talaria.core.aio import first_error
from talaria.core.ids import JobId
from talaria.runtime.workers import is_gateway_alive
from talaria.schedule import due_runs as due
from talaria.schedule.job_store import build_run_view, find_job


def run_now(arguments: argparse.Namespace, services: Services) -> int:
    """Run a job now: in a gateway that starts jobs, otherwise in this process."""
    now = SystemClock().now()

    def start(tx: Transaction) -> tuple[JobId, str, bool]:
        found = find_job(tx, arguments.job, ASKER)
        due.start_named_job(tx, arguments.job, ASKER, now)
        return found.job.id, found.plan.zone, is_gateway_alive(tx)

    with services.open_database() as database:
        job_id, zone, has_gateway = database.write(start)
    if has_gateway and services.settings().schedule.enabled:
        services.terminal.line("The gateway is running it. `talaria cron history` will show the result.")
        return 0
    _run_jobs(services, job_id)
    with services.open_database() as database:
        runs = database.read(lambda tx: tx.jobs.runs(job_id, 1))
    return _report_run(arguments, services, runs[0], zone)


def run_due(arguments: argparse.Namespace, services: Services) -> int:
    """Run due jobs and interrupted runs."""
    count = _run_jobs(services, "")
    if arguments.json:
        services.terminal.json({"runs": count})
    elif services.terminal.interactive:
        services.terminal.note(f"{count} runs." if count != 1 else "1 run.")
    return 0


def _run_jobs(services: Services, only: str) -> int:
    try:
        return asyncio.run(_run_jobs_async(services, only))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _run_jobs_async(services: Services, only: str) -> int:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as stack:
        application = services.load_application()(stack)
        return await application.run_due_jobs(only)


def _report_run(arguments: argparse.Namespace, services: Services, run: JobRun, zone: str) -> int:
    shown = build_run_view(run, zone)
    if arguments.json:
        services.terminal.json(shown)
    elif shown.output:
        services.terminal.line(shown.output)
    return 0 if run.state == "done" else 1
