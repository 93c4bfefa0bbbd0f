"""Interface through which commands and surfaces use the application; `app` implements it."""

from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from talaria.contracts.background_processes import BackgroundWork
from talaria.contracts.browser import SessionBrowsers
from talaria.contracts.hooks import Hooks
from talaria.contracts.jobs import JobService
from talaria.contracts.memory import MemoryBook, MemoryChange, MemoryItem, MemoryKind
from talaria.contracts.platform import KnownPlatforms
from talaria.contracts.provider import ChosenModel, ModelListing
from talaria.contracts.sandbox import UserShell
from talaria.contracts.skills import SkillAdmin
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.contracts.stores.turns import Cap
from talaria.contracts.tool import ToolsetState
from talaria.core.aio import StopSignal
from talaria.core.ids import SessionId
from talaria.goals.goal import Allowance
from talaria.runtime.active_session import SessionOpener
from talaria.runtime.open_session import OpenSession
from talaria.settings.model import Settings
from talaria.settings.profiles import Identity
from talaria.settings.schema import Setting

if TYPE_CHECKING:  # loaded with the first checkpoint
    from talaria.contracts.checkpoints import Checkpoints


class ModelCatalog(Protocol):
    """Models that can be used."""

    async def resolve_default_model(self) -> ChosenModel:
        """Return the default model; raises an error with the next step if none can be used."""

    async def choose(self, provider: str, model: str, why: str) -> ChosenModel:
        """Return a model of a usable provider, without asking whether it has it."""

    async def ask(self, chosen: ChosenModel) -> str:
        """Ask a model for a few tokens and return what it answered; raises `ProviderError` if it doesn't answer."""

    async def find(self, query: str) -> ChosenModel:
        """Return the model for an alias, ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER``; raises if there is none."""

    def is_provider(self, name: str) -> bool:
        """Return whether models of this provider can be named as ``name:MODEL``."""

    async def list_models(self, *, local_only: bool = False) -> ModelListing:
        """Query all usable providers for their models."""

    async def get_cached_listing(self) -> ModelListing:
        """Return the result of a recent `list_models`."""


class SettingsAdmin(Protocol):
    """Settings of the profile."""

    @property
    def current(self) -> Settings:
        """Settings in force."""

    def list(self) -> Sequence[Setting]:
        """Return all settings."""

    def change(self, key: str, value: str) -> str:
        """Write a value and return a sentence about its effect; raises if the value is invalid."""

    def reset(self, key: str) -> str:
        """Reset a setting and return a sentence about the effect; raises if it is not set."""

    def switch_tools(self, names: Sequence[str], *, on: bool) -> tuple[Sequence[str], Sequence[str]]:
        """Switch tools or toolsets; return the names that changed and notices about them."""


class AgentMemory(Protocol):
    """Memory of the agent, separate for each person."""

    def show(self, viewer: Viewer) -> str:
        """Return the memory that a viewer may see, as text."""

    def books(self, viewer: Viewer) -> Sequence[MemoryBook]:
        """Return the entries of a viewer, by kind."""

    def people(self) -> Sequence[str]:
        """Return the people other than the owner about whom something is remembered."""

    def edit(self, viewer: Viewer, kind: MemoryKind, old: str, new: str) -> None:
        """Replace an entry; without ``old`` add one, without ``new`` remove it. Raises `Refused` if that is refused."""

    def forget(self, text: str, viewer: Viewer) -> str:
        """Remove and return the memory entry that contains a text or has this id; raises unless exactly one does."""

    async def find(self, query: str, viewer: Viewer) -> Sequence[MemoryItem]:
        """Return the entries that fit a query best, by meaning where that is installed, else by words."""


class MemoryConsolidator(Protocol):
    """Consolidation of the memory of one viewer; all methods raise `Refused` with the reason."""

    async def propose(self, kind: MemoryKind | None = None) -> MemoryChange:
        """Let a model shorten one kind of memory, by default the fuller one; changes nothing."""

    async def apply(self, change: MemoryChange) -> None:
        """Apply a proposal, unless the memory was changed meanwhile."""

    async def undo(self, kind: MemoryKind | None = None, *, force: bool = False) -> MemoryChange:
        """Undo the last consolidation; with ``force`` even if the memory was changed since."""


class AgentKnowledge(Protocol):
    """Tools, skills, memory, personalities and checkpoints of the agent."""

    def toolsets(self) -> Sequence[ToolsetState]:
        """Return all tools, grouped by toolset."""

    @property
    def skills(self) -> SkillAdmin:
        """Skills of the profile, the project and the folders in the settings."""

    def skill_source(self, name: str) -> str:
        """Return the SKILL.md of a skill that can be edited; raises `Refused`."""

    def save_skill(self, name: str, before: str, text: str) -> None:
        """Replace the SKILL.md of a skill that is ``before`` until now; without that, create one. Raises `Refused`."""

    @property
    def memory(self) -> AgentMemory:
        """Memory of the agent."""

    def consolidator(self, viewer: Viewer, active: OpenSession | None = None) -> MemoryConsolidator:
        """Return the consolidation of a viewer's memory, with the model and the caps of an open session."""

    @property
    def checkpoints(self) -> "Checkpoints":
        """Checkpoints of the files that the agent works on."""

    def personalities(self) -> Mapping[str, str]:
        """Return the first line of each personality by name."""


class BackgroundServices(Protocol):
    """Services that run without a user: scheduled jobs, gateway and HTTP API."""

    @property
    def schedules(self) -> JobService:
        """Scheduled jobs."""

    async def run_due_jobs(self, only: str = "") -> int:
        """Run due jobs, or with ``only`` the pending runs of one job; return the number of runs."""

    async def serve_gateway(
        self, stop: StopSignal, *, as_worker: bool, report: Callable[[str], None] = lambda _: None
    ) -> None:
        """Serve the configured chat networks until ``stop``; ``as_worker`` allows other gateway processes."""

    async def serve_api(
        self,
        stop: StopSignal,
        *,
        host: str,
        port: int | None,
        on_listening: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        """Serve the HTTP API until ``stop``; ``on_listening`` gets its address.

        Host and port default to the settings. ``tell`` is called with notices.
        """


class Application(SessionOpener, BackgroundServices, Protocol):
    """Application interface for commands and surfaces."""

    @property
    def identity(self) -> Identity:
        """Version, profile and files of the program."""

    @property
    def notes(self) -> Sequence[str]:
        """Notices from startup for the user."""

    @property
    def models(self) -> ModelCatalog:
        """Models that can be used."""

    @property
    def settings_admin(self) -> SettingsAdmin:
        """Settings of the profile."""

    @property
    def hooks(self) -> Hooks:
        """Hooks that are notified of events."""

    @property
    def platforms(self) -> KnownPlatforms:
        """Known networks, and whether each is configured."""

    @property
    def zone(self) -> tzinfo | None:
        """Time zone for displayed times; ``None`` means the system's."""

    def caps(self, session: Session) -> Sequence[Cap]:
        """Return the spending caps that apply to a session."""

    @property
    def knowledge(self) -> AgentKnowledge:
        """Tools, skills, memory, personalities and checkpoints of the agent."""

    @property
    def command_folders(self) -> tuple[Path, ...]:
        """Folders with custom commands."""

    @property
    def shell(self) -> UserShell:
        """Shell that runs custom commands."""

    @property
    def goal_budgets(self) -> Allowance:
        """Default budgets of a goal."""

    @property
    def browsers(self) -> SessionBrowsers:
        """Browsers of the sessions."""

    @property
    def processes(self) -> BackgroundWork:
        """Background processes."""

    def supervise_background(
        self, jobs: TaskGroup, here: Callable[[], SessionId | None] | None = None
    ) -> Coroutine[Any, Any, None]:
        """Return a coroutine that supervises background work until cancelled; ``here`` limits it to one session."""
