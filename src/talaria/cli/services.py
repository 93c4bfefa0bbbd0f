"""What a subcommand may ask of the running program."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # nothing of this is loaded before a subcommand asks for it
    from contextlib import AbstractContextManager

    from talaria.cli.command_tree import Command
    from talaria.cli.terminal import Terminal
    from talaria.contracts.store import Database
    from talaria.settings.model import Settings
    from talaria.settings.profiles import Profile, Profiles


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

    def command_line(self) -> "Command":
        """Everything that may be typed after `talaria`; loads every subcommand."""
