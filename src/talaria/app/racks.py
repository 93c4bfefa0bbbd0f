"""What commands may ask of settings, tools, skills and memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from talaria.app.personalities import personalities
from talaria.app.subcommands import load
from talaria.app.toolsets import list_toolsets, skill_folders
from talaria.commands.house import Setting, Skill
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import Ambiguous, NotFound
from talaria.settings.keys import split_key, variable
from talaria.settings.load import load as load_file
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.memory.notebook import FILES, notebook_for
from talaria.tools.memory.tool import snapshot
from talaria.tools.skills.shelf import Shelf

# What the parts that every conversation shares are made of; they are made once.
_SHARED = ("store.", "log.", "providers.", "models.", "embedded.")


class ProfileSettings:
    """Implements `SettingsRack`; ``current`` is what counts for conversations that are opened from now on."""

    def __init__(self, current: Settings, profile: Profile, environment: Mapping[str, str]) -> None:
        self.current = current
        self._profile = profile
        self._environment = environment

    def list(self) -> Sequence[Setting]:
        """Return every key."""
        loaded = load_file(self._profile, self._environment)
        return [
            Setting(field.key, field.shown(value), field.doc, value == field.default)
            for field, value in loaded.values()
        ]

    def change(self, key: str, value: str) -> str:
        """Write a value and return a sentence about what that means; raises what is wrong with it."""
        edit = load("talaria.settings.edit").set_value(self._profile, key, value)
        return f"`{edit.key}` is now `{edit.shown}`. {self._taken_over(edit.key)}"

    def reset(self, key: str) -> str:
        """Let the default count again and return a sentence about what that means."""
        edit = load("talaria.settings.edit").unset_value(self._profile, key)
        return f"`{edit.key}` is as it comes again. {self._taken_over(edit.key)}"

    def switch_tools(self, names: Sequence[str], *, on: bool) -> tuple[Sequence[str], Sequence[str]]:
        """Switch tools or groups of them; return what is the other way now, and sentences about it."""
        switch = load("talaria.settings.switches").switch_tools
        switched = switch(names, list_toolsets(self.current), self._profile, self._environment, on=on)
        self._read_again()
        return switched.changed, switched.remarks

    def _taken_over(self, key: str) -> str:
        self._read_again()
        if variable(split_key(key)) in self._environment:
            return f"The environment variable {variable(split_key(key))} is set, and it wins over that."
        shared = key.startswith(_SHARED)
        return f"It counts from the next {'start' if shared else 'conversation'} on."

    def _read_again(self) -> None:
        loaded = load_file(self._profile, self._environment)
        if not loaded.faults:
            self.current = loaded.settings


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
        return [Skill(skill.document.name, skill.document.description) for skill in self._shelf.skills()]

    def skill(self, name: str) -> str:
        """Return what a skill says, or raise `NotFound`."""
        known = [skill.name for skill in self.skills()]
        if name not in known:
            raise NotFound(f"There is no skill `{name}`; there are {', '.join(known) or 'none'}.")
        return self._shelf.view(name)

    def memory(self, viewer: Viewer) -> str:
        """Return what the agent remembers where somebody looks from, as text."""
        return snapshot(self._memory, viewer)

    def forget(self, part: str, viewer: Viewer) -> str:
        """Take out the one entry of the memory that has this part, and return it."""
        books = [notebook_for(viewer, book, self._memory) for book in FILES]
        found = [(book, entry) for book in books for entry in book.entries() if part.lower() in entry.lower()]
        if not found:
            raise NotFound(f"Nothing that is remembered has `{part}` in it.")
        if len(found) > 1:
            entries = "\n".join(f"- {entry}" for _, entry in found)
            raise Ambiguous(f"Several entries have `{part}` in them; type more of the one to forget:\n\n{entries}")
        book, entry = found[0]
        book.remove(entry)
        return entry

    def personalities(self) -> Mapping[str, str]:
        """Return the first line of each personality by its name."""
        return personalities(self.profile.folder)

    @property
    def _memory(self) -> Path:
        return self.profile.memory_folder

    @property
    def _shelf(self) -> Shelf:
        return Shelf(skill_folders(self.profile, self.project))
