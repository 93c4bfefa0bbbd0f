"""A house whose jobs are run here, with a clock that is moved by hand and a scripted model behind a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from msgspec import structs
from tests.storage.engines import Place

from talaria.app.house import House, open_house
from talaria.contracts.platform import Content
from talaria.contracts.schedules import Asker, JobView, JobWish
from talaria.contracts.shell import Ran
from talaria.contracts.stores.jobs import JobRun
from talaria.contracts.stores.ledger import Cap
from talaria.core.addresses import Address
from talaria.core.session_context import SessionContext
from talaria.schedule.keeping import Rules, add_job, view
from talaria.schedule.plan import read_job
from talaria.schedule.running import Means
from talaria.schedule.ticker import Ticker
from talaria.sessions.outgoing import read_content
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import ModelServer

HOME = Address("matrix", "!home")
NETWORKS = ("matrix", "telegram")
GRACE = timedelta(hours=12)
RULES = Rules("Europe/Berlin", NETWORKS)
OWNER = Asker()
A_MOMENT = timedelta(seconds=5)


@dataclass
class Office:
    """``scripts`` are those that ran, ``answers`` how they end; without any each prints its own line."""

    house: House
    folder: Path
    clock: SettableClock
    jobs: asyncio.TaskGroup
    caps: tuple[Cap, ...] = ()
    scripts: list[tuple[str, Path, SessionContext]] = field(default_factory=list)
    answers: list[Ran] = field(default_factory=list)

    @property
    def means(self) -> Means:
        return Means(
            opener=self.house,
            jobs=self.jobs,
            clock=self.clock,
            folder=self.folder,
            networks=lambda: NETWORKS,
            script=self._script,
            skill=lambda name: f"How {name} is done.",
            caps=lambda run: self.caps,
        )

    def ticker(self) -> Ticker:
        return Ticker(self.means, lambda: GRACE)

    async def add(
        self, when: str, prompt: str | None = "Look at the weather.", asker: Asker = OWNER, **more: object
    ) -> JobView:
        wish = structs.replace(JobWish(when=when, prompt=prompt), **more)
        now = self.clock.now()
        job = await self.house.store.write(lambda tx: add_job(tx, wish, asker, RULES, now))
        return view(read_job(job))

    async def pass_time(self, **much: float) -> int:
        """Let time pass, and run what is due then; return how many runs those are."""
        self.clock.advance(timedelta(**much))
        return await self.ticker().work_off()

    async def runs(self, job: JobView) -> list[JobRun]:
        return await self.house.store.read(lambda tx: tx.jobs.runs(job.id))

    async def job(self, job: JobView) -> JobView:
        found = await self.house.store.read(lambda tx: [one for one in tx.jobs.find() if one.id == job.id])
        return view(read_job(found[0]))

    async def posted(self) -> list[tuple[str, str]]:
        """Return what waits in the outbox: for which chat, and its words."""
        waiting = await self.house.store.read(lambda tx: tx.outbox.find())
        return [(one.address.chat_id, _text(read_content(one.payload))) for one in waiting]

    async def _script(self, line: str, folder: Path, context: SessionContext) -> Ran:
        self.scripts.append((line, folder, context))
        return self.answers.pop(0) if self.answers else Ran(0, line)


def _text(content: Content) -> str:
    return content.text


@asynccontextmanager
async def open_office(
    home: Path, place: Place, server: ModelServer, clock: SettableClock, worker: str = "worker-1", settings: str = ""
) -> AsyncIterator[Office]:
    """Open a house on a store, as one of its workers; ``settings`` are lines for config.toml."""
    profile = Profiles(home / "home").active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
    profile.config_file.write_text(own + settings)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        loaded = load_settings(profile, environment)
        house = open_house(loaded, profile, read_secrets(profile, environment), environment, stack)
        store = place.open_store(clock, worker)
        stack.push_async_callback(store.close)
        yield Office(structs.replace(house, store=store), folder, clock, jobs)
