"""Services for subcommands, each created on first use."""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from io import TextIOWrapper
from typing import TYPE_CHECKING

from talaria.cli.terminal import Terminal
from talaria.core.errors import TalariaError
from talaria.settings.environment import process_environment
from talaria.settings.profiles import Profile, Profiles, find_home

if TYPE_CHECKING:  # each is imported by the first subcommand that uses it
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from talaria.cli.parser_tree import CommandSpec
    from talaria.cli.services import (
        FileService,
        McpService,
        ModelService,
        NetworkService,
        StoreMaintenance,
        ToolService,
    )
    from talaria.commands.application import AgentMemory, Application
    from talaria.contracts.checkpoints import Checkpoints
    from talaria.contracts.setup import SetupProbes
    from talaria.contracts.skills import SkillAdmin
    from talaria.contracts.store import Database
    from talaria.contracts.tool import ToolsetState
    from talaria.core.ids import SessionId
    from talaria.settings.model import Settings
    from talaria.settings.secrets import Secrets


class ProcessServices:
    """The `Services` of this process.

    ``profile_name`` and ``color`` come from the command line; without options they are ``None`` and ``auto``. Without
    an ``environment`` it is that of the process.
    """

    def __init__(self, *, profile_name: str | None, color: str, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._profile_name = profile_name
        self._color = color
        self._settings: Settings | None = None

    @cached_property
    def terminal(self) -> Terminal:
        """The terminal, or the streams that this process was redirected to."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        streams = (sys.stdin, sys.stdout, sys.stderr)
        return Terminal(streams, self.environment, color=self._color, preference=self._get_preferred_color())

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The environment of the process as it was at the start."""
        return process_environment() if self._environment is None else self._environment

    @cached_property
    def profiles(self) -> Profiles:
        """All profiles in this home."""
        return Profiles(find_home(self.environment))

    @cached_property
    def profile(self) -> Profile:
        """The profile of this run; raises `NotFound` with the nearest name if it does not exist."""
        name = self._profile_name or self.environment.get("TALARIA_PROFILE")
        return self.profiles.get(name) if name else self.profiles.active()

    def settings(self) -> "Settings":
        """Return the settings of this profile; raises `SettingsInvalid` with every error."""
        if self._settings is None:
            from talaria.settings.load import load_settings  # noqa: PLC0415 (loaded when settings are read)

            self._settings = load_settings(self.profile, self.environment)
        return self._settings

    def open_database(self) -> "AbstractContextManager[Database]":
        """Return the profile's database as a context manager that closes it."""
        from talaria.app.store import open_database  # noqa: PLC0415 (loaded when a database is opened)

        return open_database(self.settings(), self.profile)

    def store_maintenance(self) -> "StoreMaintenance":
        """Return the service that finds and repairs damage of the store."""
        from talaria.app.store import ProfileStoreMaintenance  # noqa: PLC0415 (loaded when a database is checked)

        return ProfileStoreMaintenance(self.settings(), self.profile, self.environment)

    def models(self) -> "ModelService":
        """Return the models of this profile; imports the provider clients."""
        from talaria.app.models import ProfileModels  # noqa: PLC0415 (loaded when models are listed or asked)

        return ProfileModels(self.settings(), self._secrets(), self.profile.folder)

    def setup_probes(self) -> "SetupProbes":
        """Return the probes of the setup: existing keys and servers, and checks of new keys and tokens."""
        from talaria.app.setup.probes import ProfileSetup  # noqa: PLC0415 (loaded for the set-up)

        return ProfileSetup(self.profile, self.environment)

    def tools(self) -> "ToolService":
        """Return the tools of this profile's agent."""
        return ProfileTools(self.profile, self.environment, self.settings)

    def networks(self) -> "NetworkService":
        """Return the chat networks of this profile."""
        from talaria.app.platforms import ProfileNetworks  # noqa: PLC0415 (loaded when networks are listed)

        return ProfileNetworks(self.settings(), self._secrets(), self.profile)

    def sandbox_problem(self) -> str:
        """Return why commands of the agent can't run in the sandbox of the settings; empty if they can."""
        from asyncio import run  # noqa: PLC0415 (loaded when the sandbox is checked)
        from pathlib import Path  # noqa: PLC0415 (the same)
        from tempfile import TemporaryDirectory  # noqa: PLC0415 (the same)

        from talaria.app.session.sandbox import SandboxContext, find_sandbox_problem  # noqa: PLC0415 (the same)
        from talaria.core.ids import SessionId, new_id  # noqa: PLC0415 (the same)
        from talaria.settings.load import load  # noqa: PLC0415 (the same)

        session_id = SessionId(f"check-{new_id()}")
        context = SandboxContext(
            settings=load(self.profile, self.environment).settings,
            profile=self.profile,
            surface="",
            session_id=session_id,
            environment=self.environment,
        )
        with TemporaryDirectory() as folder:
            return run(find_sandbox_problem(context, Path(folder)))

    def files(self) -> "FileService":
        """Return the files of this profile outside of the store."""
        return ProfileFiles(self.settings(), self.profile, self.environment)

    def load_application(self) -> "Callable[[AsyncExitStack], Application]":
        """Return a function that opens the application and closes it with a stack.

        The imports happen here, so that they can run in a thread.
        """
        from talaria.app.application import open_application  # noqa: PLC0415 (loaded when a session is opened)

        return partial(open_application, self.settings(), self.profile, self._secrets(), self.environment)

    def command_line(self) -> "CommandSpec":
        """Return the spec of the whole command line; imports every subcommand."""
        from talaria.app.command_line.spec import read_command_line  # noqa: PLC0415 (loaded for completion)

        return read_command_line()

    def _secrets(self) -> "Secrets":
        from talaria.settings.secrets import read_secrets  # noqa: PLC0415 (loaded when keys are needed)

        return read_secrets(self.profile, self.environment)

    def _get_preferred_color(self) -> str:
        """Return the colour setting, or ``auto`` if the settings are invalid, so that errors can be shown."""
        try:
            return self.settings().cli.color
        except TalariaError:
            return "auto"


class ProfileTools:
    """Implementation of `ToolService`; ``settings`` reads the settings, which may have faults."""

    def __init__(self, profile: Profile, environment: Mapping[str, str], settings: "Callable[[], Settings]") -> None:
        self._profile = profile
        self._environment = environment
        self._settings = settings

    def toolsets(self) -> "tuple[ToolsetState, ...]":
        """Return all tools by toolset, without those of MCP servers."""
        from talaria.app.session.toolsets import list_toolsets  # noqa: PLC0415 (loaded when tools are listed)

        return list_toolsets(self._settings())

    def skills(self) -> "SkillAdmin":
        """Return the skills of the profile and of the current folder, with the settings as they are now."""
        from pathlib import Path  # noqa: PLC0415 (loaded when skills are managed)

        from talaria.app.skills import ProfileSkills  # noqa: PLC0415 (loaded when skills are managed)
        from talaria.settings.load import load_settings  # noqa: PLC0415 (loaded when settings are read)

        return ProfileSkills(
            settings=load_settings(self._profile, self._environment),
            profile=self._profile,
            project=Path.cwd(),
            environment=self._environment,
        )

    def mcp(self) -> "McpService":
        """Return the MCP servers."""
        from talaria.app.profile_mcp import ProfileMcp  # noqa: PLC0415 (loaded when MCP servers are listed)

        return ProfileMcp(self._profile, self._environment)


class ProfileFiles:
    """Implementation of `FileService`: checkpoints, memory, and the outputs and media of sessions."""

    def __init__(self, settings: "Settings", profile: Profile, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._profile = profile
        self._environment = environment

    @property
    def checkpoints(self) -> "Checkpoints":
        """Checkpoints of all workspaces."""
        from talaria.app.session.change_recorder import open_checkpoints  # noqa: PLC0415 (loaded when they are used)

        return open_checkpoints(self._settings, self._profile, self._environment)

    @property
    def memory(self) -> "AgentMemory":
        """The agent's memory of all people."""
        from talaria.app.profile_admin import ProfileMemory  # noqa: PLC0415 (loaded when memory is shown)
        from talaria.app.session.memory import open_memories  # noqa: PLC0415 (the same)

        return ProfileMemory(open_memories(self._settings, self._profile))

    def delete_outputs(self, session_id: "SessionId") -> None:
        """Delete the output and media files of a deleted session, and its browser."""
        from shutil import rmtree  # noqa: PLC0415 (loaded when a session is deleted)

        from talaria.tools.browser.session_folder import end_browser  # noqa: PLC0415 (the same)
        from talaria.tools.output import FullOutputs  # noqa: PLC0415 (the same)

        end_browser(self._profile.browsers_folder, session_id)
        FullOutputs(self._profile.outputs_folder).forget(session_id)
        rmtree(self._profile.media_folder / session_id, ignore_errors=True)
