"""What a subcommand may ask for, made when it first asks."""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from io import TextIOWrapper
from typing import TYPE_CHECKING

from talaria.app.subcommands import load
from talaria.cli.terminal import Terminal
from talaria.core.errors import TalariaError
from talaria.settings.environment import process_environment
from talaria.settings.profiles import Profile, Profiles, find_home

if TYPE_CHECKING:  # loaded by name, each by the first subcommand that asks for it
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from talaria.cli.command_tree import Command
    from talaria.cli.services import ModelDesk, NetworkDesk, StoreCare
    from talaria.cli.setting_up.desk import SetupDesk
    from talaria.commands.house import House
    from talaria.contracts.store import Database
    from talaria.contracts.tool import ToolsetState
    from talaria.core.ids import SessionId
    from talaria.settings.model import Settings


class ProcessServices:
    """The `Services` of this process.

    ``profile_name`` and ``color`` are what the command line said; ``None`` and ``auto`` where it said nothing.
    """

    def __init__(self, *, profile_name: str | None, color: str) -> None:
        self._profile_name = profile_name
        self._color = color
        self._settings: Settings | None = None

    @cached_property
    def terminal(self) -> Terminal:
        """The terminal, or whatever the streams of this process were redirected to."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        streams = (sys.stdin, sys.stdout, sys.stderr)
        return Terminal(streams, self.environment, color=self._color, preference=self._preferred_color())

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The process's environment as it was at the start."""
        return process_environment()

    @cached_property
    def profiles(self) -> Profiles:
        """Every profile of this home."""
        return Profiles(find_home(self.environment))

    @cached_property
    def profile(self) -> Profile:
        """The profile of this run; raises `NotFound` with the nearest name where there is none such."""
        name = self._profile_name or self.environment.get("TALARIA_PROFILE")
        return self.profiles.get(name) if name else self.profiles.active()

    def settings(self) -> "Settings":
        """The settings of this profile; raises `SettingsInvalid` with every fault."""
        if self._settings is None:
            self._settings = load("talaria.settings.load").load_settings(self.profile, self.environment)
        return self._settings

    def open_database(self) -> "AbstractContextManager[Database]":
        """The profile's store, closed when the block ends."""
        settings, profile = self.settings(), self.profile
        opened: AbstractContextManager[Database] = load("talaria.app.stores").open_database(settings, profile)
        return opened

    def store_care(self) -> "StoreCare":
        """What finds and repairs damage of the store."""
        care: StoreCare = load("talaria.app.stores").ProfileStoreCare(self.settings(), self.profile, self.environment)
        return care

    def models(self) -> "ModelDesk":
        """The models of this profile; loads what speaks to providers."""
        secrets = load("talaria.settings.secrets").read_secrets(self.profile, self.environment)
        desk: ModelDesk = load("talaria.app.models").ProfileModels(self.settings(), secrets, self.profile.folder)
        return desk

    def setup_desk(self) -> "SetupDesk":
        """What is there already, and whether keys and tokens that are not written yet are right."""
        desk: SetupDesk = load("talaria.app.setup_desk").ProfileSetup(self.profile, self.environment)
        return desk

    def toolsets(self) -> "tuple[ToolsetState, ...]":
        """Every tool of this profile, by group, but those of MCP servers."""
        found: tuple[ToolsetState, ...] = load("talaria.app.toolsets").list_toolsets(self.settings())
        return found

    def networks(self) -> "NetworkDesk":
        """The chat networks of this profile."""
        secrets = load("talaria.settings.secrets").read_secrets(self.profile, self.environment)
        desk: NetworkDesk = load("talaria.app.networks").ProfileNetworks(self.settings(), secrets, self.profile)
        return desk

    def sandbox_problem(self) -> str:
        """Why commands of the agent cannot run in a sandbox here; empty where they can."""
        return load("talaria.tools.sandbox.bubblewrap").sandbox_available() or ""

    def forget_outputs(self, session_id: "SessionId") -> None:
        """Remove the files that a deleted session has left behind."""
        outputs = load("talaria.tools.output").FullOutputs(self.profile.outputs_folder)
        outputs.forget(session_id)
        load("shutil").rmtree(self.profile.media_folder / session_id, ignore_errors=True)

    def load_house(self) -> "Callable[[AsyncExitStack], House]":
        """What opens all that conversations share, and closes it with a stack; loading may be left to a thread."""
        secrets = load("talaria.settings.secrets").read_secrets(self.profile, self.environment)
        opening = load("talaria.app.house").open_house
        opener: Callable[[AsyncExitStack], House] = partial(
            opening, self.settings(), self.profile, secrets, self.environment
        )
        return opener

    def command_line(self) -> "Command":
        """Everything that may be typed after `talaria`; loads every subcommand."""
        command: Command = load("talaria.app.command_line").read_command_line()
        return command

    def _preferred_color(self) -> str:
        """Return what the settings say, if they can be read: showing a fault in them must not fail itself."""
        try:
            return self.settings().cli.color
        except TalariaError:
            return "auto"
