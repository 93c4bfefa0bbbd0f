"""What scheduled jobs need of the program: conversations, a shell for scripts, skills, budgets, and their settings."""

import shlex
import sys
from asyncio import TaskGroup, to_thread
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from talaria.app.platforms import enabled_platforms
from talaria.contracts.clock import SystemClock
from talaria.contracts.schedules import JobDesk
from talaria.contracts.shell import Ran
from talaria.contracts.store import Store
from talaria.contracts.stores.ledger import Cap
from talaria.core.errors import Refused
from talaria.core.session_context import SessionContext
from talaria.schedule.desk import ScheduleDesk
from talaria.schedule.heartbeat import Beat, Heartbeat
from talaria.schedule.keeping import Rules
from talaria.schedule.plan import Run
from talaria.schedule.reading import read_duration
from talaria.schedule.running import Means
from talaria.schedule.ticker import Ticker
from talaria.schedule.zones import system_zone
from talaria.sessions.company import first_error
from talaria.settings.model import Settings
from talaria.tools.sandbox.bubblewrap import Sandbox, sandbox_available
from talaria.tools.terminal.shell import shell_argv
from talaria.tools.workspace import LocalWorkspace

if TYPE_CHECKING:  # the house opens what is here by its name
    from talaria.app.house import House

_MICRODOLLARS = 1_000_000
_PACKAGE = Path(__file__).parents[1]


def open_desk(store: Store, settings: Settings, networks: Collection[str], environment: Mapping[str, str]) -> JobDesk:
    """Return the jobs of a store for tools and commands."""
    return ScheduleDesk(store, _rules(settings, networks, environment))


def _rules(settings: Settings, networks: Collection[str], environment: Mapping[str, str]) -> Rules:
    return Rules(settings.cli.time_zone or system_zone(environment), tuple(networks))


def job_folder(house: "House") -> Path:
    """Return where jobs work unless they say so themselves: where chats do."""
    own = house.settings.gateway.folder
    folder = Path(own).expanduser() if own else house.profile.folder.parent.parent / "workspaces" / house.profile.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_ticker(house: "House", jobs: TaskGroup) -> Ticker:
    """Return what starts jobs, whose tasks belong to ``jobs``."""
    means = Means(
        opener=house,
        jobs=jobs,
        clock=SystemClock(),
        folder=job_folder(house),
        networks=lambda: tuple(enabled_platforms(house.settings, house.secrets)),
        script=_Scripts(house).run,
        skill=house.knowledge.skill,
        caps=lambda run: _caps(house.settings, run),
        lease=timedelta(seconds=house.settings.gateway.lease_seconds),
    )
    return Ticker(means, lambda: timedelta(hours=house.settings.schedule.catch_up_hours))


async def work_off_jobs(house: "House", only: str) -> int:
    """Run what is due, or what waits already for ``only`` one job; return how many runs that were."""
    try:
        async with TaskGroup() as jobs:
            return await open_ticker(house, jobs).work_off(only)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


def open_heartbeat(house: "House") -> Heartbeat:
    """Return the heartbeat of a profile."""
    return Heartbeat(house.store, house.profile.folder, lambda: _beat(house), SystemClock())


def _beat(house: "House") -> Beat | None:
    wanted = house.settings.heartbeat
    every = read_duration(wanted.every) if wanted.every else None
    if every is None:
        return None
    begins, ends = (_time(part) for part in wanted.hours.split("-"))
    rules = _rules(house.settings, enabled_platforms(house.settings, house.secrets), house.environment)
    return Beat(every, begins, ends, rules, wanted.target, wanted.model)


def _time(text: str) -> time:
    hour, minute = text.split(":")
    return time(int(hour), int(minute))


def _caps(settings: Settings, run: Run) -> tuple[Cap, ...]:
    """Return the account of a job in this month, where there is a limit to it."""
    dollars = run.plan.dollars or settings.schedule.job_dollars
    account = f"job:{run.job_id}:{datetime.now(UTC):%Y-%m}"
    return (Cap(account, round(dollars * _MICRODOLLARS)),) if dollars else ()


class _Scripts:
    """Runs the scripts of jobs, where and as the agent's own commands run."""

    def __init__(self, house: "House") -> None:
        self._house = house

    async def run(self, line: str, folder: Path, context: SessionContext) -> Ran:
        """Return how a line ended; what it started is ended with it, also when this is cancelled."""
        house = self._house
        if not await to_thread(folder.is_dir):
            raise Refused(f"The folder {folder} is not there.")
        place = LocalWorkspace(folder, house.given)
        place.tell(context)
        sandbox = await to_thread(self._sandbox, folder)
        if sandbox is not None and sandbox.problem:
            raise Refused(sandbox.refusal)
        line = shlex.join(sandbox.wrap(shell_argv(line), folder)) if sandbox else line
        ran = await house.shell.run(line, (), place, seconds=house.settings.schedule.script_seconds)
        return Ran(ran.code, house.mask(ran.output))

    def _sandbox(self, folder: Path) -> Sandbox | None:
        house, wanted = self._house, self._house.settings.sandbox
        if not wanted.enabled:
            return None
        return Sandbox(
            writable=(folder,),
            readable=(Path(sys.prefix), _PACKAGE),
            hidden=(house.profile.folder, house.profile.guests_folder),
            network=wanted.network,
            problem=sandbox_available() or "",
        )
