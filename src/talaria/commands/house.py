"""What commands ask of the program as a whole; `app` hands them the real thing."""

from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from talaria.contracts.hooks import Hooks
from talaria.contracts.models import Chosen, Listing
from talaria.contracts.platform import KnownPlatforms
from talaria.contracts.processes import BackgroundWork
from talaria.contracts.schedules import JobDesk
from talaria.contracts.shell import Shell
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.contracts.tool import ToolsetState
from talaria.core.ids import SessionId
from talaria.goals.goal import Allowance
from talaria.sessions.ending import Stop
from talaria.sessions.seat import ChatOpener


class ModelRack(Protocol):
    """The models that can be used."""

    async def find(self, words: str) -> Chosen:
        """Return the model that ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER`` means; raises where there is none."""

    def is_provider(self, name: str) -> bool:
        """Tell whether models of a provider can be named as ``name:MODEL``."""

    async def listing(self, *, local_only: bool = False) -> Listing:
        """Ask every provider that can be used for its models."""

    async def recent_listing(self) -> Listing:
        """Return what such a question found lately."""


class Setting(Struct, frozen=True):
    """One key of the settings; secrets in its value are masked."""

    key: str
    value: str
    about: str
    is_default: bool


class SettingsRack(Protocol):
    """The settings of the profile."""

    def list(self) -> Sequence[Setting]:
        """Return every key."""

    def change(self, key: str, value: str) -> str:
        """Write a value and return a sentence about what that means; raises what is wrong with it."""

    def reset(self, key: str) -> str:
        """Let the default count again and return a sentence about what that means; raises where it does already."""

    def switch_tools(self, names: Sequence[str], *, on: bool) -> tuple[Sequence[str], Sequence[str]]:
        """Switch tools or groups of them; return what is the other way now, and sentences about it."""


class Skill(Struct, frozen=True):
    """Something the agent has learned to do."""

    name: str
    about: str


class Knowledge(Protocol):
    """What the agent knows and can do."""

    def toolsets(self) -> Sequence[ToolsetState]:
        """Return every tool, by group."""

    def skills(self) -> Sequence[Skill]:
        """Return every skill."""

    def skill(self, name: str) -> str:
        """Return what a skill says, or raise `NotFound`."""

    def memory(self, viewer: Viewer) -> str:
        """Return what the agent remembers where somebody looks from, as text."""

    def forget(self, part: str, viewer: Viewer) -> str:
        """Take out the one entry of the memory that has this part, and return it; raises where it is not one."""

    def personalities(self) -> Mapping[str, str]:
        """Return the first line of each personality by its name."""


class Identity(Struct, frozen=True, kw_only=True):
    """Which Talaria this is."""

    version: str
    profile: str
    folder: Path
    store: str
    log_file: Path


class Undertakings(Protocol):
    """What goes on without a person who waits for it."""

    @property
    def schedules(self) -> JobDesk:
        """The scheduled jobs."""

    async def work_off_jobs(self, only: str = "") -> int:
        """Run what is due, or what waits already for ``only`` one job; return how many runs that were."""

    async def serve_gateway(self, stop: Stop, *, beside: bool, report: Callable[[str], None] = lambda _: None) -> None:
        """Serve the chat networks that are set up until ``stop``; ``beside`` lets other processes do so too."""

    async def serve_api(
        self, stop: Stop, *, host: str, port: int | None, listens: Callable[[str], None], tell: Callable[[str], None]
    ) -> None:
        """Serve the HTTP API until ``stop``, at this place or where the settings say; ``listens`` hears where that is.

        ``tell`` hears what else there is to know.
        """


class House(ChatOpener, Undertakings, Protocol):
    """The program, as far as commands and front doors need it."""

    @property
    def identity(self) -> Identity:
        """Which Talaria this is."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about the opening that the person should read."""

    @property
    def models(self) -> ModelRack:
        """The models that can be used."""

    @property
    def settings_rack(self) -> SettingsRack:
        """The settings of the profile."""

    @property
    def hooks(self) -> Hooks:
        """Who else is told of what happens."""

    @property
    def platforms(self) -> KnownPlatforms:
        """The networks that are known, and whether each is configured."""

    @property
    def zone(self) -> tzinfo | None:
        """The time zone in which times are told; ``None`` is that of the system."""

    def caps(self, session: Session) -> Sequence[Cap]:
        """Return what may be spent where this conversation counts."""

    @property
    def knowledge(self) -> Knowledge:
        """What the agent knows and can do."""

    @property
    def command_folders(self) -> tuple[Path, ...]:
        """Where commands of the person's own are."""

    @property
    def shell(self) -> Shell:
        """What runs commands of the person's own."""

    @property
    def goal_budgets(self) -> Allowance:
        """What a standing goal may take unless it says so itself."""

    @property
    def processes(self) -> BackgroundWork:
        """What goes on as a process without its conversation."""

    def tend_background(
        self, jobs: TaskGroup, here: Callable[[], SessionId | None] | None = None
    ) -> Coroutine[Any, Any, None]:
        """Return what sees to the background until it is cancelled; with ``here`` to that of one conversation only."""
