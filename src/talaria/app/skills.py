"""Skills of a profile: list, audit, install, update, switch and remove them. Implements `SkillAdmin`."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from talaria.app.session.toolsets import list_command_folders, list_skill_folders
from talaria.commands.registry import REGISTRY, load_custom_commands
from talaria.contracts.skills import (
    NO_USAGE,
    SkillAudit,
    SkillChange,
    SkillInfo,
    SkillOffer,
    SkillUsage,
)
from talaria.core.errors import NotFound, Refused, ToolFailed
from talaria.core.text_diff import diff_texts
from talaria.settings.load import load
from talaria.settings.model import Settings, ToolSettings
from talaria.settings.profiles import Profile
from talaria.settings.schema import variable
from talaria.tools.atomic_files import sole_writer
from talaria.tools.skills.editor import SkillEditor
from talaria.tools.skills.records import InstalledSkill, compute_digest
from talaria.tools.skills.registry import HEAD, Skill, SkillRegistry, check_document, read_document

if TYPE_CHECKING:  # loaded when a source is opened
    from talaria.tools.skills.sources import SkillSource

_DISABLED = ("tools", "disabled_skills")


@contextmanager
def _open_source(address: str, ref: str = "") -> Iterator["SkillSource"]:
    from talaria.tools.skills.sources import open_source  # noqa: PLC0415 (loaded when a source is opened: needs zipfile)

    with open_source(address, ref) as source:
        yield source


@contextmanager
def refusing(*, about: str = "") -> Iterator[None]:
    """Turn the failure of a tool into `Refused`, as a sentence."""
    try:
        yield
    except ToolFailed as error:
        reason = str(error).partition("\n")[0]
        is_word = reason.partition(" ")[0].isalpha()  # not the name of a file
        first = reason[:1].upper() if is_word and not about else reason[:1]
        raise Refused(f"{about}{first}{reason[1:].rstrip('.')}.") from error


class ProfileSkills(Struct, frozen=True, kw_only=True):
    """Skills of a profile and a project folder; ``on_change`` is called after a change of the settings."""

    settings: Settings
    profile: Profile
    project: Path
    environment: Mapping[str, str] = {}
    on_change: Callable[[], object] = lambda: None

    def list(self, usage: Mapping[str, SkillUsage] = NO_USAGE) -> Sequence[SkillInfo]:
        """Return all skills, hidden and broken ones included, by name."""
        with refusing():
            found = tuple(self._describe_all(usage))
        return sorted(found, key=lambda one: (one.name, not one.is_enabled))

    def get(self, name: str) -> SkillInfo:
        """Return one skill; the one that is in effect if several have that name."""
        found = [one for one in self.list() if one.name == name]
        if not found:
            known = ", ".join(dict.fromkeys(one.name for one in self.list()))
            raise NotFound(f"There is no skill `{name}`. Available: {known or 'none'}.")
        return found[0]

    def text(self, name: str) -> str:
        """Return the instructions of a skill and the list of its files."""
        with refusing():
            return self._registry.view_skill(self._find(name))

    def instructions(self, name: str) -> str:
        """Return the text of a skill that the agent may see; raises `Refused` for any other."""
        if problem := self.get(name).problem:
            raise Refused(f"The skill `{name}` can't be used. {problem}")
        return self.text(name)

    def search(self, query: str) -> Sequence[SkillInfo]:
        """Return the skills that contain all words, those with the words in their name first."""
        words = query.lower().split()
        ranked = []
        for info in self.list():
            fields = (info.name, info.about.lower(), self._read_text(info).lower())
            if words and all(any(word in field for field in fields) for word in words):
                ranked.append((min(_rank(word, fields) for word in words), info))
        return [info for _, info in sorted(ranked, key=lambda one: (-one[0], one[1].name))]

    def audit(self, name: str) -> SkillAudit:
        """Return what a skill would do."""
        with refusing(), _open_source(str(self._find(name).folder)) as source:
            return self._audit(source.read_skill(""))

    def list_offers(self, source: str, ref: str = "") -> Sequence[SkillOffer]:
        """Fetch a source and return the skills in it."""
        with refusing(), _open_source(source, ref) as opened:
            return [_describe_offer(opened, folder) for folder in opened.find_skill_folders()]

    def fetch(
        self, source: str, names: Sequence[str] = (), *, ref: str = "", every: bool = False
    ) -> Sequence[SkillChange]:
        """Fetch the named skills of a source, or its only one, for `apply`."""
        with refusing(), _open_source(source, ref) as opened:
            offers = {folder: _describe_offer(opened, folder) for folder in opened.find_skill_folders()}
            if not offers:
                raise Refused(f"{source} contains no skill: no folder in it has a {HEAD}.")
            return [self._prepare(opened, folder) for folder in _choose(offers, names, source, every=every)]

    def fetch_update(self, name: str) -> SkillChange | None:
        """Fetch an installed skill again; ``None`` if it hasn't changed."""
        record = self._registry.records.read_all().get(name)
        if record is None:
            self.get(name)
            raise Refused(f"`{name}` wasn't installed from a source, so there is nothing to update it from.")
        origin = record.origin
        with refusing(about=f"`{name}`: "), _open_source(origin.source, origin.ref) as opened:
            if origin.path not in opened.find_skill_folders():
                raise Refused(f"{origin.source} no longer contains `{name}` in {origin.path or 'its top folder'}.")
            change = self._prepare(opened, origin.path)
        if change.name != name:
            raise Refused(f"The skill in {origin.source} is now called `{change.name}`. Install it under that name.")
        return None if change.digest == record.digest and not change.overwrites else change

    def apply(self, change: SkillChange, *, enable: bool) -> None:
        """Write a fetched skill, all or nothing; unless ``enable``, the agent doesn't see it yet."""
        root, records = self._registry.roots[0], self._registry.records
        with refusing():
            # after a crash in between, the skill is hidden until it is confirmed
            records.put(change.name, change.origin, change.digest)
            with sole_writer(root):
                _replace_folder(root, change.name, change.files)
            if enable:
                records.confirm(change.name)

    def switch(self, name: str, *, on: bool, seen: str = "") -> str:
        """Show a skill to the agent, with its current files, or hide it; return a sentence about the effect.

        With ``seen``, the digest of an audit, it is shown only if its files are still those.
        """
        if on and seen and self.audit(name).digest != seen:
            raise Refused(f"The files of `{name}` have changed since you looked at them. Look at them again.")
        with refusing():
            skill = self._find(name)
            if on and self._registry.is_installed(skill):
                self._registry.records.confirm(skill.folder.name)
        disabled = load(self.profile, {}).settings.tools.disabled_skills
        if on == (name in disabled):
            self._write_disabled([*(one for one in disabled if one != name), *([] if on else [name])])
        if variable(_DISABLED) in self.environment:
            return f"The environment variable {variable(_DISABLED)} is set and overrides it."
        return "It takes effect from the next conversation."

    def remove(self, name: str) -> str:
        """Remove a skill of the profile and return a sentence about where it is now."""
        info, registry = self.get(name), self._registry
        if not info.is_own:
            raise Refused(f"`{name}` is in {info.folder}, which isn't the profile's folder. Delete it there.")
        with refusing():
            if info.origin is not None and not registry.records.is_changed(name):
                SkillEditor(registry).delete(name)
                return f"Removed `{name}`. It came from {info.origin.source}."
            return f"Removed `{name}`. Its files are in {SkillEditor(registry).archive(name)}."

    @property
    def _registry(self) -> SkillRegistry:
        tools = self.settings.tools
        folders = list_skill_folders(self.profile, self.project, tools.skill_folders, self.environment)
        return SkillRegistry(folders, tools.disabled_skills)

    def _find(self, name: str) -> Skill:
        self.get(name)
        found = [skill for skill in self._registry.list_all_skills() if skill.document.name == name]
        if not found:
            raise Refused(f"`{name}` can't be used: {self.get(name).problem}")
        return found[0]

    def _describe_all(self, usage: Mapping[str, SkillUsage]) -> Iterator[SkillInfo]:
        registry = self._registry
        records, taken = self._read_records(), self._list_commands()
        seen: dict[str, Skill] = {}
        for skill in registry.find_all():
            name = skill.document.name
            first = seen.setdefault(name, skill)
            hidden = f"Another skill of this name hides it: {_shorten(first.folder)}." if first is not skill else ""
            problem = hidden or registry.find_problem(skill)
            record = records.get(skill.folder.name) if skill.folder.parent == registry.roots[0] else None
            used = usage.get(name, SkillUsage())
            yield SkillInfo(
                name=name,
                about=skill.document.description,
                root=self._name_root(skill.root),
                folder=str(skill.folder),
                is_enabled=not problem,
                is_own=registry.is_own(skill),
                problem=problem,
                command="" if problem or name in taken else f"/{name}",
                origin=record.origin if record else None,
                digest=record.digest if record else "",
                uses=used.count if first is skill else 0,
                last_used=used.last if first is skill else None,
            )
        for root, folder, problem in registry.find_broken():
            yield SkillInfo(
                name=folder.name, about="", root=self._name_root(root), folder=str(folder), is_enabled=False,
                problem=problem,
            )  # fmt: skip

    def _read_records(self) -> Mapping[str, InstalledSkill]:
        """Return the records of installed skills; none if they can't be read, which each skill reports as problem."""
        try:
            return self._registry.records.read_all()
        except ToolFailed:
            return {}

    def _list_commands(self) -> set[str]:
        custom, _ = load_custom_commands(list_command_folders(self.profile, self.project))
        return {name for command in (*REGISTRY, *custom) for name in command.names}

    def _name_root(self, root: Path) -> str:
        if root == self.profile.skills_folder:
            return "profile"
        return "project" if root.parent.parent == self.project else _shorten(root)

    def _read_text(self, info: SkillInfo) -> str:
        try:
            return Path(info.folder, HEAD).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _prepare(self, source: "SkillSource", folder: str) -> SkillChange:
        """Return a skill of a source with its audit, and its diff if it is installed already."""
        files = source.read_skill(folder)
        document = read_document(_check_head(files))
        name, registry = document.name, self._registry
        own = next(
            (one for one in registry.list_all_skills() if one.document.name == name and registry.is_own(one)), None
        )
        record = registry.records.read_all().get(name)
        if own is not None and record is None:
            raise Refused(f"There is a skill `{name}` of your own in {own.folder}. Rename or remove it first.")
        return SkillChange(
            name=name,
            about=document.description,
            origin=source.make_origin(folder),
            digest=compute_digest(files),
            audit=self._audit(files),
            files=files,
            diff=_diff_files(_read_installed(own.folder), files) if own else "",
            previous=record.origin if record else None,
            overwrites=registry.records.is_changed(name),
        )

    def _audit(self, files: Mapping[str, tuple[bytes, bool]]) -> SkillAudit:
        from talaria.tools.skills.audit import audit_skill  # noqa: PLC0415 (loaded for an audit)

        return structs.replace(audit_skill(files, self._examine), digest=compute_digest(files))

    def _examine(self, command: str) -> Sequence[str]:
        """Return the dangers of a command line by the approval rules, as clauses."""
        from talaria.agent.approval.paths import PathRules  # noqa: PLC0415 (loaded for an audit)
        from talaria.agent.approval.shell_analysis import ShellExamination  # noqa: PLC0415 (loaded for an audit)

        home = Path(self.environment.get("HOME") or self.profile.folder)
        examination = ShellExamination(PathRules(self.project, home, (self.profile.folder,), (), set()), {})
        examination.examine(command)
        return tuple(dict.fromkeys(danger.reason for danger in examination.found))

    def _write_disabled(self, names: Sequence[str]) -> None:
        from talaria.settings.edit import set_value, unset_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

        if tuple(names) == ToolSettings().disabled_skills:
            unset_value(self.profile, ".".join(_DISABLED))
        else:
            set_value(self.profile, ".".join(_DISABLED), msgspec.json.encode(names).decode())
        self.on_change()


def _rank(word: str, fields: tuple[str, str, str]) -> int:
    return next((rank for rank, field in zip((3, 2, 1), fields, strict=True) if word in field), 0)


def _shorten(path: Path) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 (text)
    return f"~{str(path)[len(home) :]}" if str(path).startswith(f"{home}/") else str(path)


def _check_head(files: Mapping[str, tuple[bytes, bool]]) -> str:
    """Return the text of a SKILL.md, or raise `ToolFailed` with what is wrong with it."""
    try:
        text = files[HEAD][0].decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{HEAD} isn't UTF-8 text") from error
    check_document(text, read_document(text).name)
    return text


def _describe_offer(source: "SkillSource", folder: str) -> SkillOffer:
    path = f"{folder}/{HEAD}" if folder else HEAD
    fallback = Path(folder).name or Path(source.address).stem
    try:
        document = read_document(_check_head({HEAD: (source.read(path), False)}))
    except ToolFailed as error:
        return SkillOffer(fallback, "", folder, f"{path}: {error}.")
    return SkillOffer(document.name, document.description, folder)


def _choose(offers: Mapping[str, SkillOffer], names: Sequence[str], source: str, *, every: bool) -> Sequence[str]:
    """Return the folders of the chosen skills; a name may also be a path in the source."""
    if every:
        return [folder for folder, one in offers.items() if not one.problem]
    listed = ", ".join(sorted(one.name for one in offers.values()))
    if not names and len(offers) > 1:
        raise Refused(f"{source} contains {len(offers)} skills: {listed}. Name those to install, or use `--all`.")
    chosen = [
        folder
        for name in (names or [next(iter(offers.values())).name])
        for folder in ([one for one, offer in offers.items() if name in (offer.name, one)] or [f"?{name}"])
    ]
    missing = [one[1:] for one in chosen if one.startswith("?")]
    if missing:
        raise NotFound(f"{source} contains no skill `{missing[0]}`. It has: {listed}.")
    return list(dict.fromkeys(chosen))


def _read_installed(folder: Path) -> dict[str, tuple[bytes, bool]]:
    with _open_source(str(folder)) as source:
        return source.read_skill("")


def _diff_files(before: Mapping[str, tuple[bytes, bool]], after: Mapping[str, tuple[bytes, bool]]) -> str:
    """Return the changes of all files as a unified diff."""
    parts = []
    for path in sorted({*before, *after}):
        old, new = before.get(path, (b"", False)), after.get(path, (b"", False))
        if old == new:
            continue
        header = f"--- {path if path in before else '/dev/null'}\n+++ {path if path in after else '/dev/null'}"
        if b"\0" in old[0] + new[0]:
            body = f"@@ binary file: {len(old[0]):,} bytes before, {len(new[0]):,} after @@"
        else:
            body = diff_texts(old[0].decode("utf-8", "replace"), new[0].decode("utf-8", "replace"))
        if old[1] != new[1] and path in before and path in after:
            body = f"@@ it is {'now' if new[1] else 'no longer'} executable @@\n{body}".rstrip()
        parts.append(f"{header}\n{body}")
    return "\n".join(parts)


def _replace_folder(root: Path, name: str, files: Mapping[str, tuple[bytes, bool]]) -> None:
    """Replace the folder of a skill; what an interrupted replacement has left is restored first."""
    import shutil  # noqa: PLC0415 (loaded when a skill is installed)

    target, draft, replaced = root / name, root / f".{name}.new", root / f".{name}.old"
    if replaced.exists() and not target.exists():
        replaced.rename(target)
    for leftover in (draft, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    _write_files(draft, files)
    if target.exists():
        target.rename(replaced)
    draft.rename(target)
    shutil.rmtree(replaced, ignore_errors=True)


def _write_files(folder: Path, files: Mapping[str, tuple[bytes, bool]]) -> None:
    for path, (content, executable) in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if executable else 0o644)
