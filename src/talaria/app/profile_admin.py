"""Settings, tools, skills, memory and personalities of a profile, for commands and surfaces."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from talaria.app.session.personalities import personalities
from talaria.app.session.toolsets import list_toolsets, skill_folders
from talaria.commands.views import MemoryBook, MemoryKind, Setting, Skill
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import Ambiguous, NotFound, Refused, ToolFailed
from talaria.settings.live import LiveSettings
from talaria.settings.load import load as load_file
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.schema import split_key, variable
from talaria.tools.memory.notebook import FILES, entries_size, notebook_for, snapshot
from talaria.tools.skills.registry import SkillRegistry
from talaria.tools.workspace import list_people

if TYPE_CHECKING:  # loaded with the first checkpoint
    from talaria.contracts.checkpoints import Checkpoints

# Settings of the shared application context, which is created once per process.
_SHARED_SECTIONS = ("store.", "log.", "models.", "embedded.")
T = TypeVar("T")


class ProfileSettings(LiveSettings):
    """Settings of a profile in force, and edits of its files. Implements `commands.SettingsAdmin`."""

    def __init__(self, current: Settings, profile: Profile, environment: Mapping[str, str]) -> None:
        super().__init__(current)
        self._profile = profile
        self._environment = environment

    def list(self) -> Sequence[Setting]:
        """Return every setting."""
        loaded = load_file(self._profile, self._environment)
        return [
            Setting(field.key, field.shown(value), field.doc, value == field.default)
            for field, value in loaded.values()
        ]

    def change(self, key: str, value: str) -> str:
        """Write a value and return a message about its effect; raises if the key or value is invalid."""
        from talaria.settings.edit import set_value  # noqa: PLC0415 (loaded when a setting is changed)

        edit = set_value(self._profile, key, value)
        return f"`{edit.key}` is now `{edit.shown}`. {self._explain_effect(edit.key)}"

    def reset(self, key: str) -> str:
        """Restore the default of a setting and return a message about the effect."""
        from talaria.settings.edit import unset_value  # noqa: PLC0415 (loaded when a setting is changed)

        edit = unset_value(self._profile, key)
        return f"`{edit.key}` is back at its default. {self._explain_effect(edit.key)}"

    def switch_tools(self, names: Sequence[str], *, on: bool) -> tuple[Sequence[str], Sequence[str]]:
        """Switch tools or toolsets on or off; return those that changed, and remarks."""
        from talaria.settings.tool_switches import switch_tools  # noqa: PLC0415 (loaded when tools are switched)

        switched = switch_tools(names, list_toolsets(self.current), self._profile, self._environment, on=on)
        self.reload()
        return switched.changed, switched.remarks

    def reload(self) -> None:
        """Apply the settings in the files, unless they have faults."""
        loaded = load_file(self._profile, self._environment)
        if not loaded.faults:
            self.replace(loaded.settings)

    def _explain_effect(self, key: str) -> str:
        self.reload()
        if variable(split_key(key)) in self._environment:
            return f"The environment variable {variable(split_key(key))} is set and overrides it."
        shared = key.startswith(_SHARED_SECTIONS)
        return f"It takes effect from the next {'start' if shared else 'conversation'}."


class ProfileKnowledge(Struct, frozen=True):
    """Tools, skills, memory, personalities and checkpoints, in the folders of a profile and a project."""

    settings: Settings
    profile: Profile
    project: Path
    environment: Mapping[str, str]

    @property
    def checkpoints(self) -> "Checkpoints":
        """Checkpoints of the files that the agent works on."""
        from talaria.app.session.change_recorder import open_checkpoints  # noqa: PLC0415 (loaded when they are used)

        return open_checkpoints(self.settings, self.profile, self.environment)

    def toolsets(self) -> Sequence[ToolsetState]:
        """Return all tools, by toolset."""
        return list_toolsets(self.settings)

    def skills(self) -> Sequence[Skill]:
        """Return all skills."""
        registry = self._skill_registry
        enabled = {skill.document.name for skill in registry.skills()}
        return [
            Skill(
                skill.document.name,
                skill.document.description,
                is_enabled=skill.document.name in enabled,
                is_own=registry.is_own(skill),
            )
            for skill in registry.all_skills()
        ]

    def skill(self, name: str) -> str:
        """Return the text of a skill, or raise `NotFound`."""
        known = [skill.name for skill in self.skills()]
        if name not in known:
            raise NotFound(f"There is no skill `{name}`. Available: {', '.join(known) or 'none'}.")
        return SkillRegistry(self._skill_registry.roots).view(name)

    def skill_source(self, name: str) -> str:
        """Return the SKILL.md of a skill of the profile, or raise `Refused`."""
        return _refusing(lambda: self._skill_registry.read_source(name))

    def save_skill(self, name: str, before: str, text: str) -> None:
        """Replace the SKILL.md of a skill that is ``before`` until now; without that, create a skill."""
        _refusing(lambda: self._skill_registry.write_source(name, before, text))

    @property
    def memory(self) -> "ProfileMemory":
        """The memory of the agent."""
        return ProfileMemory(self.profile.memory_folder)

    def personalities(self) -> Mapping[str, str]:
        """Return the first line of each personality, by name."""
        return personalities(self.profile.folder)

    @property
    def _skill_registry(self) -> SkillRegistry:
        return SkillRegistry(skill_folders(self.profile, self.project), self.settings.tools.disabled_skills)


def _refusing(work: Callable[[], T]) -> T:
    """Return the result of some work of a tool; its failure becomes `Refused`, as a sentence."""
    try:
        return work()
    except ToolFailed as error:
        reason = str(error).partition("\n")[0]
        raise Refused(f"{reason[:1].upper()}{reason[1:].rstrip('.')}.") from error


class ProfileMemory(Struct, frozen=True):
    """Memory files in the ``folder`` of a profile. Implements `commands.AgentMemory`."""

    folder: Path

    def show(self, viewer: Viewer) -> str:
        """Return the agent's memory as text, as far as this viewer may read it."""
        return snapshot(self.folder, viewer)

    def books(self, viewer: Viewer) -> Sequence[MemoryBook]:
        """Return the memory files of a viewer."""
        books = [notebook_for(viewer, kind, self.folder) for kind in FILES]
        return [
            MemoryBook(kind=one.book, entries=one.entries(), size=entries_size(one.entries()), limit=one.limit)
            for one in books
        ]

    def people(self) -> Sequence[str]:
        """Return the people other than the owner about whom something is remembered."""
        return [name for name in list_people(self.folder) if snapshot(self.folder, Viewer(name))]

    def edit(self, viewer: Viewer, kind: MemoryKind, old: str, new: str) -> None:
        """Replace, add or remove an entry; raises `Refused` with the reason if that is refused."""
        book = notebook_for(viewer, kind, self.folder)
        if old and new:
            _refusing(lambda: book.replace(old, new))
        elif old:
            _refusing(lambda: book.remove(old))
        else:
            _refusing(lambda: book.add(new))

    def forget(self, part: str, viewer: Viewer) -> str:
        """Remove the only memory entry that contains this text, and return it.

        Ignores case. Raises `NotFound` or `Ambiguous`.
        """
        books = [notebook_for(viewer, book, self.folder) for book in FILES]
        found = [(book, entry) for book in books for entry in book.entries() if part.lower() in entry.lower()]
        if not found:
            raise NotFound(f"No memory entry contains `{part}`.")
        if len(found) > 1:
            entries = "\n".join(f"- {entry}" for _, entry in found)
            raise Ambiguous(f"Several entries contain `{part}`. Type more of the one to forget:\n\n{entries}")
        book, entry = found[0]
        book.remove(entry)
        return entry
