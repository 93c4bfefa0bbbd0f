"""An application that runs jobs, with a settable clock and a scripted model server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from msgspec import structs
from tests.storage.engines import StoreLocation

from talaria.app.application import TalariaApplication, open_application
from talaria.contracts.jobs import JobRequest, JobRequester, JobRun, JobView
from talaria.contracts.platform import Content
from talaria.contracts.sandbox import ShellResult
from talaria.contracts.stores.turns import Cap
from talaria.core.addresses import Address
from talaria.core.session_context import SessionContext
from talaria.runtime.outbox import read_content
from talaria.schedule.job_store import JobRules, add_job, build_job_view, read_job
from talaria.schedule.run_executor import RunDependencies
from talaria.schedule.scheduler import Scheduler
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import ModelServer

HOME = Address("matrix", "!home")
NETWORKS = ("matrix", "telegram")
GRACE = timedelta(hours=12)
RULES = JobRules("Europe/Berlin", NETWORKS)
OWNER = JobRequester()
A_MOMENT = timedelta(seconds=5)


@dataclass
class ScheduleFixture:
    """``scripts`` records those that ran, ``answers`` are their results; without any each prints its own line."""

    application: TalariaApplication
    folder: Path
    clock: SettableClock
    jobs: asyncio.TaskGroup
    caps: tuple[Cap, ...] = ()
    scripts: list[tuple[str, Path, SessionContext]] = field(default_factory=list)
    answers: list[ShellResult] = field(default_factory=list)

    @property
    def dependencies(self) -> RunDependencies:
        return RunDependencies(
            opener=self.application,
            jobs=self.jobs,
            clock=self.clock,
            folder=self.folder,
            networks=lambda: NETWORKS,
            script=self._script,
            skill=lambda name: f"How {name} is done.",
            caps=lambda run: self.caps,
        )

    def make_scheduler(self) -> Scheduler:
        return Scheduler(self.dependencies, lambda: GRACE)

    async def add(
        self, when: str, prompt: str | None = "Look at the weather.", asker: JobRequester = OWNER, **more: object
    ) -> JobView:
        request = structs.replace(JobRequest(when=when, prompt=prompt), **more)
        now = self.clock.now()
        job = await self.application.store.write(lambda tx: add_job(tx, request, asker, RULES, now))
        return build_job_view(read_job(job))

    async def pass_time(self, **much: float) -> int:
        """Let time pass, run the due jobs, and return the number of runs."""
        self.clock.advance(timedelta(**much))
        return await self.make_scheduler().run_pending_turns()

    async def runs(self, job: JobView) -> list[JobRun]:
        return await self.application.store.read(lambda tx: tx.jobs.runs(job.id))

    async def job(self, job: JobView) -> JobView:
        found = await self.application.store.read(lambda tx: [one for one in tx.jobs.find() if one.id == job.id])
        return build_job_view(read_job(found[0]))

    async def posted(self) -> list[tuple[str, str]]:
        """Return the pending outbox rows: chat and text."""
        waiting = await self.application.store.read(lambda tx: tx.outbox.find())
        return [(one.address.chat_id, _text(read_content(one.payload))) for one in waiting]

    async def _script(self, line: str, folder: Path, context: SessionContext) -> ShellResult:
        self.scripts.append((line, folder, context))
        return self.answers.pop(0) if self.answers else ShellResult(0, line)


def _text(content: Content) -> str:
    return content.text


@asynccontextmanager
async def open_schedule(
    home: Path,
    store_location: StoreLocation,
    server: ModelServer,
    clock: SettableClock,
    worker: str = "worker-1",
    settings: str = "",
) -> AsyncIterator[ScheduleFixture]:
    """Open an application on a store, as one of its workers; ``settings`` are lines for config.toml."""
    profile = Profiles(home / "home").active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
    profile.config_file.write_text(own + settings)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        loaded = load_settings(profile, environment)
        application = open_application(loaded, profile, read_secrets(profile, environment), environment, stack)
        store = store_location.open_store(clock, worker)
        stack.push_async_callback(store.close)
        yield ScheduleFixture(structs.replace(application, store=store), folder, clock, jobs)
