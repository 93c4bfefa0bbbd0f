"""Settings, tools, skills, memory, personalities and personas of a profile, for sessions, commands and surfaces."""

from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, structs

from talaria.app.session.memory import open_memories
from talaria.app.session.toolsets import list_skill_folders, list_toolsets
from talaria.contracts.memory import MEMORY_KINDS, MemoryBook, MemoryEntry, MemoryItem, MemoryKind, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import Ambiguous, NotFound, Refused, ToolFailed
from talaria.runtime.open_session import OpenRequest
from talaria.settings.atomic_files import read_file, read_stamp
from talaria.settings.load import load as load_file
from talaria.settings.model import LiveSettings, Settings, SurfaceSettings
from talaria.settings.profiles import Profile
from talaria.settings.schema import Setting, split_key, variable
from talaria.tools.memory.notebook import Memories, measure_entries, rank_by_words
from talaria.tools.skills.registry import SkillRegistry

if TYPE_CHECKING:  # loaded with the first checkpoint or consolidation, and when skills are managed
    from talaria.app.skills import ProfileSkills
    from talaria.commands.application import MemoryConsolidator
    from talaria.contracts.checkpoints import Checkpoints
    from talaria.runtime.open_session import OpenSession
    from talaria.tools.skills.editor import SkillEditor

BUILT_IN_PERSONALITIES: Mapping[str, str] = {
    "concise": "Answer as briefly as possible: no preamble, no repetition, no summary at the end.",
    "teacher": "Teach: explain the idea first, then give one small example, and end with a question to try.",
    "reviewer": "Look for problems first. Say what fails, where, how you know, and how to fix it.",
    "pirate": "Speak like an old sea captain, but keep every fact, number, path and piece of code exact.",
}
# Settings of the shared application context, which is created once per process.
_SHARED_SECTIONS = ("store.", "log.", "models.", "embedded.")
_BY_PERSON = MemorySource(surface="person")
_NEAR = 0.15  # as in the search of conversations
T = TypeVar("T")


class ProfileSettings(LiveSettings):
    """Settings of a profile in force, and edits of its files. Implements `commands.SettingsAdmin`."""

    def __init__(self, current: Settings, profile: Profile, environment: Mapping[str, str]) -> None:
        super().__init__(current)
        self._profile = profile
        self._environment = environment
        self._stamp = read_stamp(self._profile.config_file)

    @property
    def is_outdated(self) -> bool:
        """Return whether the settings file has changed since it was read."""
        return read_stamp(self._profile.config_file) != self._stamp

    def list(self) -> Sequence[Setting]:
        """Return every setting."""
        loaded = load_file(self._profile, self._environment)
        return [
            Setting(field.key, field.format_value(value), field.doc, value == field.default)
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
        from talaria.settings.config_writer import switch_tools  # noqa: PLC0415 (loaded when tools are switched)

        switched = switch_tools(names, list_toolsets(self.current), self._profile, self._environment, on=on)
        self.reload()
        return switched.changed, switched.remarks

    def reload(self) -> None:
        """Apply the settings in the files, unless they have faults."""
        self._stamp = read_stamp(self._profile.config_file)
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
    """Tools, skills, memory, personalities and checkpoints, in the folders of a profile and a project.

    ``on_change`` is called after a change of the settings.
    """

    settings: Settings
    profile: Profile
    project: Path
    environment: Mapping[str, str]
    open_consolidator: "Callable[[Viewer, OpenSession | None], MemoryConsolidator]"
    on_change: Callable[[], object] = lambda: None

    @property
    def checkpoints(self) -> "Checkpoints":
        """Checkpoints of the files that the agent works on."""
        from talaria.app.session.change_recorder import open_checkpoints  # noqa: PLC0415 (loaded when they are used)

        return open_checkpoints(self.settings, self.profile, self.environment)

    def toolsets(self) -> Sequence[ToolsetState]:
        """Return all tools, by toolset."""
        return list_toolsets(self.settings)

    @property
    def skills(self) -> "ProfileSkills":
        """The skills of the profile, the project and the folders in the settings."""
        from talaria.app.skills import ProfileSkills  # noqa: PLC0415 (loaded when skills are managed)

        return ProfileSkills(
            settings=self.settings,
            profile=self.profile,
            project=self.project,
            environment=self.environment,
            on_change=self.on_change,
        )

    def skill_source(self, name: str) -> str:
        """Return the SKILL.md of a skill of the profile, or raise `Refused`."""
        return _run_or_refuse(lambda: self._skill_editor.read_source(name))

    def save_skill(self, name: str, before: str, text: str) -> None:
        """Replace the SKILL.md of a skill that is ``before`` until now; without that, create a skill."""
        _run_or_refuse(lambda: self._skill_editor.write_source(name, before, text))

    @property
    def memory(self) -> "ProfileMemory":
        """The memory of the agent."""
        return ProfileMemory(open_memories(self.settings, self.profile))

    def consolidator(self, viewer: Viewer, active: "OpenSession | None" = None) -> "MemoryConsolidator":
        """Return the consolidation of a viewer's memory, with the model and the caps of an open session."""
        return self.open_consolidator(viewer, active)

    def personalities(self) -> Mapping[str, str]:
        """Return the first line of each personality, by name."""
        return list_personalities(self.profile.folder)

    @property
    def _skill_editor(self) -> "SkillEditor":
        from talaria.tools.skills.editor import SkillEditor  # noqa: PLC0415 (loaded when a skill is edited)

        tools = self.settings.tools
        roots = list_skill_folders(self.profile, self.project, tools.skill_folders, self.environment)
        return SkillEditor(SkillRegistry(roots, tools.disabled_skills))


class ProfileMemory(Struct, frozen=True):
    """The memory of a profile, as people use it. Implements `commands.AgentMemory`."""

    memories: Memories

    def show(self, viewer: Viewer) -> str:
        """Return the agent's memory as text, as far as this viewer may read it."""
        return self.memories.snapshot(viewer)

    def books(self, viewer: Viewer) -> Sequence[MemoryBook]:
        """Return the entries of a viewer, by kind."""
        return [self._read_book(viewer, kind) for kind in MEMORY_KINDS]

    def people(self) -> Sequence[str]:
        """Return the people other than the owner about whom something is remembered."""
        return self.memories.provider.people()

    def edit(self, viewer: Viewer, kind: MemoryKind, old: str, new: str) -> None:
        """Replace, add or remove an entry; raises `Refused` with the reason if that is refused."""
        book = self.memories.open_notebook(viewer, kind, _BY_PERSON)
        if old and new:
            _run_or_refuse(lambda: book.replace(old, new))
        elif old:
            _run_or_refuse(lambda: book.remove(old))
        else:
            _run_or_refuse(lambda: book.add(new))

    def forget(self, part: str, viewer: Viewer) -> str:
        """Remove the only memory entry that contains this text or has this id, and return it.

        Ignores case. Raises `NotFound` or `Ambiguous`.
        """
        entries = self.memories.provider.entries(viewer)
        found = [one for one in entries if part == one.id] or [
            one for one in entries if part.lower() in one.text.lower()
        ]
        if not found:
            raise NotFound(f"No memory entry contains `{part}`.")
        if len(found) > 1:
            listed = "\n".join(f"- {one.text}" for one in found)
            raise Ambiguous(f"Several entries contain `{part}`. Type more of the one to forget:\n\n{listed}")
        _run_or_refuse(lambda: self.memories.provider.remove(viewer, found[0]))
        return found[0].text

    async def find(self, query: str, viewer: Viewer) -> Sequence[MemoryItem]:
        """Return the entries that fit a query best; by meaning, those that contain its words still come first."""
        from talaria.tools.recall.tool import Meaning  # noqa: PLC0415 (loaded when memory is searched)

        entries = await to_thread(self.memories.provider.entries, viewer)
        found = rank_by_words(query, entries)
        if Meaning.is_installed() and entries:
            near = await Meaning().compute_similarity(query, [one.text for one in entries])
            close = sorted(zip(near, entries, strict=True), key=lambda pair: -pair[0])
            found += [one for similarity, one in close if similarity >= _NEAR and one not in found]
        return [_show_entry(one) for one in found]

    def _read_book(self, viewer: Viewer, kind: MemoryKind) -> MemoryBook:
        book = self.memories.open_notebook(viewer, kind)
        entries = book.entries()
        size = measure_entries([one.text for one in entries])
        return MemoryBook(kind=kind, entries=tuple(map(_show_entry, entries)), size=size, limit=book.limit)


def read_personality(folder: Path, name: str) -> str:
    """Return the text of a personality: a file of the profile, or a built-in one.

    Raises `NotFound` if there is neither.
    """
    own = read_file(folder / "personalities" / f"{name}.md")
    if own is not None:
        return own.decode(errors="replace").strip()
    if name not in BUILT_IN_PERSONALITIES:
        raise NotFound(f"There is no personality `{name}`. Available: {', '.join(sorted(list_personalities(folder)))}.")
    return BUILT_IN_PERSONALITIES[name]


def list_personalities(folder: Path) -> Mapping[str, str]:
    """Return the first line of each personality, by name."""
    own = {file.stem: read_personality(folder, file.stem) for file in (folder / "personalities").glob("*.md")}
    return {name: text.partition("\n")[0] for name, text in sorted({**BUILT_IN_PERSONALITIES, **own}.items())}


def apply_persona(settings: Settings, request: OpenRequest, stored: str) -> tuple[Settings, OpenRequest]:
    """Return the settings and the request of a session of a persona: the ``stored`` one, or that of the request.

    A persona that is no longer in the settings has become the agent itself.
    """
    name = stored or request.persona
    persona = settings.personas.get(name)
    if persona is None:
        return settings, structs.replace(request, persona="")
    surface = request.surface.source
    tools, surfaces, model, memory = settings.tools, settings.surfaces, settings.model, settings.memory
    if persona.toolsets:
        tools = structs.replace(tools, toolsets=persona.toolsets)
        own = structs.replace(surfaces.get(surface) or SurfaceSettings(), toolsets=persona.toolsets)
        surfaces = {**surfaces, surface: own}
    if persona.model:
        first, colon, rest = model.aliases.get(persona.model, persona.model).partition(":")
        model = structs.replace(model, provider=first if colon else model.provider, name=rest if colon else first)
    if persona.memory == "own":
        memory = structs.replace(memory, space=name)
    servers = settings.mcp if persona.mcp else {}
    settings = structs.replace(settings, tools=tools, surfaces=surfaces, model=model, memory=memory, mcp=servers)
    return settings, structs.replace(request, persona=name, identity=request.identity or persona.instructions)


def _run_or_refuse(work: Callable[[], T]) -> T:
    """Return the result of some work of a tool; its failure becomes `Refused`, as a sentence."""
    try:
        return work()
    except ToolFailed as error:
        reason = str(error).partition("\n")[0]
        raise Refused(f"{reason[:1].upper()}{reason[1:].rstrip('.')}.") from error


def _show_entry(entry: MemoryEntry) -> MemoryItem:
    source = entry.source
    return MemoryItem(id=entry.id, text=entry.text, at=entry.at, surface=source.surface, session=source.session)
