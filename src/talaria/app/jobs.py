"""Scheduled jobs and heartbeat, with their sessions, scripts, skills, budgets and settings."""

import shlex
from asyncio import TaskGroup, to_thread
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from talaria.app.session.sandbox import SandboxContext, open_sandbox
from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import CRON, JobService
from talaria.contracts.sandbox import SandboxCommand, ShellResult
from talaria.contracts.store import Store
from talaria.contracts.stores.turns import Cap
from talaria.core.aio import first_error
from talaria.core.errors import Refused, ToolFailed
from talaria.core.ids import SessionId, new_id
from talaria.core.session_context import SessionContext
from talaria.schedule.heartbeat import HeartbeatPlan, HeartbeatWorker
from talaria.schedule.job_service import StoredJobService
from talaria.schedule.job_store import JobRules, PendingRun
from talaria.schedule.parse_when import read_duration
from talaria.schedule.recurrence import find_system_zone
from talaria.schedule.run_executor import RunDependencies
from talaria.schedule.scheduler import Scheduler
from talaria.settings.model import Settings
from talaria.tools.sandbox.client_program import end_inside
from talaria.tools.terminal.shell import build_plain_argv
from talaria.tools.workspace import LocalWorkspace

if TYPE_CHECKING:  # imported only for annotations: the application imports this module
    from talaria.app.application import TalariaApplication

_MICRODOLLARS = 1_000_000


def open_job_service(
    store: Store, settings: Settings, networks: Collection[str], environment: Mapping[str, str]
) -> JobService:
    """Return the jobs of a store for tools and commands."""
    return StoredJobService(store, _build_rules(settings, networks, environment))


def _build_rules(settings: Settings, networks: Collection[str], environment: Mapping[str, str]) -> JobRules:
    return JobRules(settings.cli.time_zone or find_system_zone(environment), tuple(networks))


def make_job_folder(application: "TalariaApplication") -> Path:
    """Return the default working folder of jobs, creating it if needed; it is the folder of chats too."""
    own = application.settings.gateway.folder
    folder = (
        Path(own).expanduser()
        if own
        else application.profile.folder.parent.parent / "workspaces" / application.profile.name
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_scheduler(application: "TalariaApplication", jobs: TaskGroup) -> Scheduler:
    """Return a scheduler whose tasks belong to ``jobs``."""
    dependencies = RunDependencies(
        opener=application,
        jobs=jobs,
        clock=SystemClock(),
        folder=make_job_folder(application),
        networks=application.networks,
        script=_ScriptRunner(application).run,
        skill=application.knowledge.skills.instructions,
        caps=lambda run: _build_caps(application.settings, run),
        lease=timedelta(seconds=application.settings.gateway.lease_seconds),
    )
    return Scheduler(dependencies, lambda: timedelta(hours=application.settings.schedule.catch_up_hours))


async def run_due_jobs(application: "TalariaApplication", only: str) -> int:
    """Run due jobs, or with ``only`` the pending runs of one job; return the number of runs."""
    try:
        async with TaskGroup() as jobs:
            return await open_scheduler(application, jobs).run_pending_turns(only)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


def open_heartbeat(application: "TalariaApplication") -> HeartbeatWorker:
    """Return the heartbeat of a profile."""
    return HeartbeatWorker(
        application.store, application.profile.folder, lambda: _read_plan(application), SystemClock()
    )


def _read_plan(application: "TalariaApplication") -> HeartbeatPlan | None:
    settings_section = application.settings.heartbeat
    every = read_duration(settings_section.every) if settings_section.every else None
    if every is None:
        return None
    begins, ends = (_parse_time(part) for part in settings_section.hours.split("-"))
    rules = _build_rules(application.settings, application.networks(), application.environment)
    return HeartbeatPlan(every, begins, ends, rules, settings_section.target, settings_section.model)


def _parse_time(text: str) -> time:
    hour, minute = text.split(":")
    return time(int(hour), int(minute))


def _build_caps(settings: Settings, run: PendingRun) -> tuple[Cap, ...]:
    """Return this month's cost cap of a job, if it has a limit."""
    dollars = run.plan.dollars or settings.schedule.job_dollars
    account = f"job:{run.job_id}:{datetime.now(UTC):%Y-%m}"
    return (Cap(account, round(dollars * _MICRODOLLARS)),) if dollars else ()


class _ScriptRunner:
    """Runner of job scripts, with the same shell, environment and sandbox as the agent's commands."""

    def __init__(self, application: "TalariaApplication") -> None:
        self._application = application

    async def run(self, line: str, folder: Path, context: SessionContext) -> ShellResult:
        """Run a command line and return its exit code and output.

        Processes that it started end with it, also on cancellation. Raises `Refused` if the folder does not exist or
        the sandbox is unavailable.
        """
        application = self._application
        if not await to_thread(folder.is_dir):
            raise Refused(f"The folder {folder} doesn't exist.")
        workspace = LocalWorkspace(folder, application.given)
        workspace.set_context(context)
        seconds = application.settings.schedule.script_seconds
        async with AsyncExitStack() as closing:
            sandbox = open_sandbox(self._describe(), (folder,), (), closing)
            if sandbox is None:
                ran = await application.shell.run(line, (), workspace, seconds=seconds)
                return ShellResult(ran.code, application.mask(ran.output).rstrip("\n"))
            try:
                await sandbox.start()
            except ToolFailed as error:
                raise Refused(str(error)) from error
            launch = sandbox.call(
                SandboxCommand(build_plain_argv(line, sandbox.programs), str(folder), workspace.environment)
            )
            closing.push_async_callback(end_inside, launch.end, launch.environment)
            added = [
                f"{name}={value}" for name, value in launch.environment.items() if name not in workspace.environment
            ]
            inside = shlex.join(("env", *added, *launch.argv) if added else launch.argv)
            ran = await application.shell.run(inside, (), workspace, seconds=seconds)
            remarks = sandbox.remarks(ran.output, ran.code)
        output = "\n".join((application.mask(ran.output).rstrip("\n"), *(f"[{one}]" for one in remarks)))
        return ShellResult(ran.code, output)

    def _describe(self) -> SandboxContext:
        """Return what a sandbox for one run is made from."""
        application = self._application
        return SandboxContext(
            settings=application.settings,
            profile=application.profile,
            surface=CRON,
            session_id=SessionId(f"script-{new_id()}"),
            environment=application.given,
        )
