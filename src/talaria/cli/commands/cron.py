"""`talaria cron`: list, show, add, change, pause, remove and run scheduled jobs."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import CRON, HOME, Job, JobRequest, JobRequester, JobRun, JobView, RunView
from talaria.contracts.store import Transaction
from talaria.core.aio import first_error
from talaria.core.errors import Refused
from talaria.core.ids import JobId
from talaria.runtime.workers import is_gateway_alive
from talaria.schedule import due_runs as due
from talaria.schedule.job_service import NO_GATEWAY, find_job_problems
from talaria.schedule.job_store import (
    HEARTBEAT,
    JobRules,
    add_job,
    build_job_view,
    build_run_view,
    change_job,
    find_job,
    read_job,
    remove_job,
)
from talaria.schedule.recurrence import find_system_zone

_EPILOG = """\
WHEN is either one time: 'in 30m' or just 30m, 'tomorrow 9:00', '2026-12-24 18:00';
or recurring: 'every 2h', 'every monday 9:00', 'every weekday 8:30',
'every month on the 1st at 9:00', '0 9 * * 1-5' (minute, hour, day, month, weekday).

The gateway starts due jobs. Without a gateway, use the system's cron:
  * * * * * talaria cron run-due
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    add = actions.add_parser("add", help="schedule a job", epilog=_EPILOG)
    add.add_argument("when", metavar="WHEN", help="when to run, see below")
    add.add_argument("prompt", metavar="PROMPT", nargs="?", help="the task for the agent; - reads standard input")
    _add_job_options(add)
    listing = actions.add_parser("list", help="list the jobs and their next runs")
    listing.add_argument("--all", action="store_true", help="include finished jobs and those of guests")
    edit = _add_job_parser(actions, "edit", "change a job; everything not given stays as it is")
    edit.add_argument("--when", metavar="WHEN", help="when to run")
    edit.add_argument("--prompt", metavar="PROMPT", help="the task for the agent")
    _add_job_options(edit)
    job_parsers = [
        _add_job_parser(actions, "show", "show a job in full"),
        _add_job_parser(actions, "pause", "pause a job"),
        _add_job_parser(actions, "resume", "resume a job"),
        _add_job_parser(actions, "remove", "remove a job and its history"),
        _add_job_parser(actions, "run", "run a job now, whatever its schedule"),
    ]
    history = _add_job_parser(actions, "history", "show a job's latest runs and their results")
    history.add_argument("--limit", metavar="N", type=int, default=10, help="at most this many (default: 10)")
    due = actions.add_parser("run-due", help="run due jobs and exit; for the system's cron")
    for action in (add, listing, edit, history, due, *job_parsers):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services)


def _add_job_parser(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary)
    parser.add_argument("job", metavar="JOB", help="id, name or part of the name")
    return parser


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="name of the job (default: the start of the prompt)")
    parser.add_argument(
        "--script",
        metavar="LINE",
        help="shell command whose output goes to the agent; without a prompt, only the command runs",
    )
    parser.add_argument("--skill", metavar="SKILL", action="append", help="skill to load first; repeatable")
    parser.add_argument("--model", metavar="MODEL", help="model to use, as PROVIDER:NAME")
    add_completion(parser.add_argument("--folder", metavar="FOLDER", help="working folder"), "folders")
    parser.add_argument(
        "--deliver",
        metavar="TARGET",
        action="append",
        help="where to report: home (default), nowhere, or a target as for `talaria send`; repeatable",
    )
    parser.add_argument("--times", metavar="N", type=int, help="how many times to run; 0 means forever")
    parser.add_argument("--zone", metavar="ZONE", help="time zone, for example Europe/Berlin (default: yours)")
    parser.add_argument("--catch-up", choices=("once", "never"), help="how to treat missed runs (default: once)")
    parser.add_argument("--dollars", metavar="N", type=float, help="monthly budget; 0 means the one in the settings")


_OUTPUT_LIMIT = 60
_SOURCE_VARIABLE = "TALARIA_SESSION_SOURCE"
_ASKER = JobRequester(everyone=True)
_JOBS_NOT_STARTED = (
    "No gateway is running, so jobs won't start. Run `talaria gateway start`, or have the "
    "system's cron call `talaria cron run-due` every minute."
)


def _list_jobs(arguments: argparse.Namespace, services: Services) -> int:
    """List the owner's jobs that have not ended, or all jobs."""
    with services.open_database() as database:
        found, has_gateway = database.read(lambda tx: (_read_jobs(tx), is_gateway_alive(tx)))
    jobs = found if arguments.all else [one for one in found if one.state != "over" and not one.owner]
    if arguments.json:
        services.terminal.json(jobs)
        return 0
    if jobs:
        rows = [(one.id, one.name, one.schedule, one.next_told or one.state, ", ".join(one.deliver)) for one in jobs]
        services.terminal.table(("JOB", "NAME", "WHEN", "NEXT", "REPORTS TO"), rows)
        _note_missing_gateway(services, has_gateway=has_gateway)
    elif services.terminal.interactive:
        services.terminal.note(
            "Nothing is scheduled. Add a job: `talaria cron add 'every monday 9:00' 'Water the plants.'`"
        )
    return 0


def _show_job(arguments: argparse.Namespace, services: Services) -> int:
    """Show the details of a job."""
    with services.open_database() as database:
        job, has_gateway = database.read(
            lambda tx: (build_job_view(find_job(tx, arguments.job, _ASKER)), is_gateway_alive(tx))
        )
    if arguments.json:
        services.terminal.json(job)
        return 0
    for name, value in {"name": job.name, **job.facts}.items():
        services.terminal.line(f"{name:<11} {value}")
    _note_missing_gateway(services, has_gateway=has_gateway)
    return 0


def _show_history(arguments: argparse.Namespace, services: Services) -> int:
    """Show the latest runs of a job, newest first."""

    def read(tx: Transaction) -> list[RunView]:
        found = find_job(tx, arguments.job, _ASKER)
        return [build_run_view(run, found.plan.zone) for run in tx.jobs.runs(found.job.id, arguments.limit)]

    with services.open_database() as database:
        runs = database.read(read)
    if arguments.json:
        services.terminal.json(runs)
        return 0
    rows = [(one.due_told, one.state, one.session_id or "", _format_output(one.output)) for one in runs]
    services.terminal.table(("DUE", "STATE", "SESSION", "SAID"), rows)
    return 0


def _read_jobs(tx: Transaction) -> list[JobView]:
    return [build_job_view(read_job(job)) for job in tx.jobs.find() if job.id != HEARTBEAT]


def _format_output(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _OUTPUT_LIMIT else f"{flat[: _OUTPUT_LIMIT - 1]}…"


def _add_job(arguments: argparse.Namespace, services: Services) -> int:
    """Create a job."""
    if services.environment.get(_SOURCE_VARIABLE) == CRON:
        raise Refused("A scheduled job can't create other jobs.")
    request = _build_request(arguments)
    if request.deliver is None:
        request = _build_request(arguments, deliver=(HOME,))
    now, by = SystemClock().now(), _build_rules(services)
    return _write_change(arguments, services, lambda tx: add_job(tx, request, _ASKER, by, now))


def _edit_job(arguments: argparse.Namespace, services: Services) -> int:
    """Change the given fields of a job."""
    request = _build_request(arguments)
    if request == JobRequest():
        raise Refused("Nothing to change. `talaria help cron edit` lists the options.")
    return _change(arguments, services, request)


def _pause_job(arguments: argparse.Namespace, services: Services) -> int:
    """Pause a job."""
    return _change(arguments, services, JobRequest(paused=True))


def _resume_job(arguments: argparse.Namespace, services: Services) -> int:
    """Resume a paused job."""
    return _change(arguments, services, JobRequest(paused=False))


def _remove_job(arguments: argparse.Namespace, services: Services) -> int:
    """Remove a job."""
    with services.open_database() as database:
        job = database.write(lambda tx: remove_job(tx, arguments.job, _ASKER))
    if arguments.json:
        services.terminal.json(build_job_view(read_job(job)))
    else:
        services.terminal.line(f"Removed {job.name}.")
    return 0


def _change(arguments: argparse.Namespace, services: Services, request: JobRequest) -> int:
    now, by = SystemClock().now(), _build_rules(services)
    return _write_change(arguments, services, lambda tx: change_job(tx, arguments.job, request, _ASKER, by, now))


def _write_change(arguments: argparse.Namespace, services: Services, work: Callable[[Transaction], Job]) -> int:
    networks = services.networks().targets()

    def change_job(tx: Transaction) -> tuple[JobView, bool]:
        job = read_job(work(tx))
        return build_job_view(job, find_job_problems(tx, job, networks)), is_gateway_alive(tx)

    with services.open_database() as database:
        shown, has_gateway = database.write(change_job)
    if arguments.json:
        services.terminal.json(shown)
        return 0
    services.terminal.line(
        f"{shown.id}  {shown.name}: {shown.schedule}, {_describe_next(shown.next_told, shown.state)}"
    )
    _note_missing_gateway(services, has_gateway=has_gateway)
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


def _build_rules(services: Services) -> JobRules:
    """Return the time zone and the networks of the profile."""
    zone = services.settings().cli.time_zone or find_system_zone(services.environment)
    return JobRules(zone, tuple(services.networks().targets()))


def _note_missing_gateway(services: Services, *, has_gateway: bool) -> None:
    """Print a note if no gateway is running, or if it does not start jobs."""
    if not has_gateway:
        services.terminal.note(_JOBS_NOT_STARTED)
    elif not services.settings().schedule.enabled:
        services.terminal.note(
            "The gateway doesn't start jobs because `schedule.enabled` is off. Run `talaria "
            "config set schedule.enabled true`."
        )


def _run_now(arguments: argparse.Namespace, services: Services) -> int:
    """Run a job now: in a gateway that starts jobs, otherwise in this process."""
    now = SystemClock().now()

    def start(tx: Transaction) -> tuple[JobId, str, bool]:
        found = find_job(tx, arguments.job, _ASKER)
        due.start_named_job(tx, arguments.job, _ASKER, now)
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


def _run_due(arguments: argparse.Namespace, services: Services) -> int:
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


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int]] = {
    "list": _list_jobs,
    "show": _show_job,
    "history": _show_history,
    "add": _add_job,
    "edit": _edit_job,
    "pause": _pause_job,
    "resume": _resume_job,
    "remove": _remove_job,
    "run": _run_now,
    "run-due": _run_due,
}
