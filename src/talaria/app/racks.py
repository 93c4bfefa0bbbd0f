"""What commands may ask of settings, tools, skills and memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from talaria.app.personalities import personalities
from talaria.app.subcommands import load
from talaria.app.toolsets import list_toolsets
from talaria.commands.house import Setting, Skill
from talaria.contracts.tool import ToolsetState
from talaria.settings.load import load as load_file
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.memory.tool import snapshot
from talaria.tools.skills.shelf import Shelf


class ProfileSettings(Struct, frozen=True):
    """Implements `SettingsRack`: the settings of a profile as its files and the environment say them now."""

    profile: Profile
    environment: Mapping[str, str]

    def list(self) -> Sequence[Setting]:
        """Return every key."""
        loaded = load_file(self.profile, self.environment)
        return [
            Setting(field.key, field.shown(value), field.doc, value == field.default)
            for field, value in loaded.values()
        ]

    def change(self, key: str, value: str) -> str:
        """Write a value and return a sentence about what that means; raises what is wrong with it."""
        edit = load("talaria.settings.edit").set_value(self.profile, key, value)
        return f"{edit.key} = {edit.shown}. It counts from the next conversation on."


class ProfileKnowledge(Struct, frozen=True):
    """Implements `Knowledge`: what is in the folder of a profile, and in that of a project."""

    settings: Settings
    profile: Profile
    project: Path

    def toolsets(self) -> Sequence[ToolsetState]:
        """Return every tool, by group."""
        return list_toolsets(self.settings)

    def skills(self) -> Sequence[Skill]:
        """Return every skill."""
        shelf = Shelf((self.profile.folder / "skills", self.project / ".talaria" / "skills"))
        return [Skill(skill.document.name, skill.document.description) for skill in shelf.skills()]

    def memory(self) -> str:
        """Return what the agent remembers, as text."""
        return snapshot(self.profile.folder / "memory")

    def personalities(self) -> Mapping[str, str]:
        """Return the first line of each personality by its name."""
        return personalities(self.profile.folder)
