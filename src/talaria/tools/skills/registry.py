"""The skills of several folders; the first of a name wins, and new ones go to the first folder."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.core.file_cache import FileCache
from talaria.core.front_matter import split_front_matter
from talaria.tools.atomic_files import sole_writer, write_whole

SIZE_LIMIT = 60_000  # characters of one file


DESCRIPTION_LIMIT = 1_024


_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Document(Struct, frozen=True):
    """The content of a SKILL.md; ``body`` is the instructions."""

    name: str
    description: str
    body: str


def read_document(text: str) -> Document:
    """Return the content of a SKILL.md; missing fields are empty."""
    fields, body = split_front_matter(text)
    return Document(fields.get("name", ""), " ".join(fields.get("description", "").split()), body)


def write_document(document: Document) -> str:
    """Return the text of a SKILL.md."""
    return f"---\nname: {document.name}\ndescription: {document.description}\n---\n\n{document.body.strip()}\n"


def check_document(text: str, name: str) -> None:
    """Raise `ToolFailed` unless this is a valid SKILL.md for this name."""
    document = read_document(text)
    check_name(name)
    if document.name != name:
        raise ToolFailed(f"SKILL.md must start with front matter containing `name: {name}`")
    if not document.description or len(document.description) > DESCRIPTION_LIMIT:
        raise ToolFailed(
            f"a skill needs a description of at most {DESCRIPTION_LIMIT:,} characters that says when to use it"
        )
    if not document.body:
        raise ToolFailed("a skill needs a body that says what to do")
    check_size(text)


def check_name(name: str) -> None:
    """Raise `ToolFailed` unless this is a valid name for a skill and its folder."""
    if len(name) > 64 or not _NAME.fullmatch(name):
        raise ToolFailed(
            f"{name!r} is not a valid skill name: use lower-case letters, digits and single hyphens, at most 64 "
            "characters"
        )


def check_size(text: str) -> None:
    """Raise `ToolFailed` for a file too long to read at once."""
    if len(text) > SIZE_LIMIT:
        raise ToolFailed(f"the text has {len(text):,} characters; a skill file may have at most {SIZE_LIMIT:,}")


INDEX_LIMIT = 4_000  # characters


_LINE_LIMIT = 160


_FILES_SHOWN = 100


_HEAD = "SKILL.md"


class Skill(Struct, frozen=True):
    """A skill and its folder."""

    folder: Path
    document: Document


class SkillRegistry(Struct, frozen=True):
    """All skills of some folders; those of an earlier folder hide later ones of the same name.

    Skills that are ``disabled`` are known only to `all_skills` and to the methods for editing.
    """

    roots: tuple[Path, ...]
    disabled: Collection[str] = ()

    def skills(self) -> list[Skill]:
        """Return every enabled skill, sorted by name."""
        return [skill for skill in self.all_skills() if skill.document.name not in self.disabled]

    def all_skills(self) -> list[Skill]:
        """Return every skill, sorted by name."""
        found: dict[str, Skill] = {}
        for folder in _folders(self.roots):
            skill = _skill_in(folder)
            if skill is not None:
                found.setdefault(skill.document.name, skill)
        return [found[name] for name in sorted(found)]

    def skill(self, name: str) -> Skill:
        """Return one skill, or raise `ToolFailed` with the available names."""
        skills = {skill.document.name: skill for skill in self.skills()}
        if name not in skills:
            raise ToolFailed(f"there is no skill {name!r}; available: {', '.join(skills) or 'none'}")
        return skills[name]

    def view(self, name: str, file: str = "") -> str:
        """Return the text of a skill and the list of its files, or one of those files."""
        skill = self.skill(name)
        if file and file != _HEAD:
            return _read(_inside(skill, file))
        others = _files(skill.folder)
        listed = f"\n\nFiles in {skill.folder}:\n" + "\n".join(others) if others else ""
        return f"{skill.document.body}{listed}"

    def create(self, document: Document) -> str:
        """Create a skill in the first folder."""
        self.create_from(document.name, write_document(document))
        return f"Created {document.name}."

    def create_from(self, name: str, text: str) -> None:
        """Create a skill with this SKILL.md in the first folder."""
        check_document(text, name)
        if not self.roots:
            raise ToolFailed("there is no skills folder")
        with sole_writer(self.roots[0]):
            self._refuse_another(read_document(text))
            folder = self.roots[0] / name
            folder.mkdir(exist_ok=True)
            write_whole(folder / _HEAD, text, mode=0o644)

    def is_own(self, skill: Skill) -> bool:
        """Return whether a skill is in the first folder, where new ones go."""
        return bool(self.roots) and skill.folder.resolve().is_relative_to(self.roots[0].resolve())

    def read_source(self, name: str) -> str:
        """Return the whole SKILL.md of a skill."""
        return _read(self._find_own(name).folder / _HEAD)

    def write_source(self, name: str, before: str, text: str) -> None:
        """Replace the SKILL.md of a skill that is ``before`` until now, or create a skill if that is empty."""
        text = f"{text.strip()}\n"
        check_document(text, name)
        if not before:
            self.create_from(name, text)
            return
        path = self._find_own(name).folder / _HEAD
        with sole_writer(path.parent.parent):
            if _read(path) != before:
                raise ToolFailed(f"skill {name} was changed in the meantime; load it again")
            write_whole(path, text, mode=0o644)

    def patch(self, name: str, old: str, new: str, file: str = "") -> str:
        """Replace the only occurrence of ``old`` in a file of a skill; without ``old``, create a file."""
        skill = self.skill(name)
        path = _inside(skill, file or _HEAD)
        with sole_writer(skill.folder.parent):
            text = _patched(_read(path), old, new) if old else _new_text(path, new)
            if path.name == _HEAD and path.parent == skill.folder.resolve():
                check_document(text, name)
            check_size(text)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text, mode=0o644)
        return f"Wrote {file or _HEAD} of {name}."

    def _find_own(self, name: str) -> Skill:
        """Return a skill of the first folder, or raise `ToolFailed`."""
        for skill in self.all_skills():
            if skill.document.name == name and self.is_own(skill):
                return skill
        raise ToolFailed(f"there is no skill {name!r} that can be edited here")

    def _refuse_another(self, document: Document) -> None:
        for skill in self.all_skills():
            if skill.document.name == document.name and skill.document != document:
                raise ToolFailed(f"skill {document.name} already exists; patch it, or choose another name")


def index(roots: Sequence[Path], disabled: Collection[str] = ()) -> str:
    """Return a line per enabled skill, for a system prompt; those that don't fit are counted."""
    lines = [_line(skill) for skill in SkillRegistry(tuple(roots), disabled).skills()]
    kept: list[str] = []
    room = INDEX_LIMIT
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append(f"… and {len(lines) - len(kept)} more: call `skills` with action list")
            break
        kept.append(line)
    return "\n".join(kept)


def _line(skill: Skill) -> str:
    description = " ".join(skill.document.description.split())
    cut = description if len(description) <= _LINE_LIMIT else description[: _LINE_LIMIT - 1].rstrip() + "…"
    return f"{skill.document.name}: {cut}"


def _folders(roots: tuple[Path, ...]) -> Iterator[str]:
    """Yield the folders that may contain a SKILL.md, including grouped ones; as strings, because there are many."""
    for root in roots:
        outer = _subfolders(str(root))
        yield from outer
        yield from sorted(folder for group in outer for folder in _subfolders(group))


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError:
        return []


def _skill_in(folder: str) -> Skill | None:
    try:
        document = _HEADS.get(f"{folder}/{_HEAD}")
    except OSError:
        return None
    return Skill(Path(folder), document) if document else None


def _document(text: str) -> Document | None:
    """Return the content of a SKILL.md, if it is valid."""
    try:
        document = read_document(text)
        check_name(document.name)
    except ToolFailed:
        return None
    return document


_HEADS = FileCache(_document)


def _inside(skill: Skill, file: str) -> Path:
    home = skill.folder.resolve()
    path = (home / file).resolve()
    if not path.is_relative_to(home) or path == home:
        raise ToolFailed(f"{file!r} is not inside the skill")
    return path


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailed(f"{path.name} can't be read as text") from error
    check_size(text)
    return text


def _patched(text: str, old: str, new: str) -> str:
    if new and new in text and old not in text.replace(new, ""):
        return text
    if (count := text.count(old)) != 1:
        raise ToolFailed(f"`old` occurs {count} times; it must occur exactly once")
    return text.replace(old, new)


def _new_text(path: Path, text: str) -> str:
    if path.exists() and _read(path) != text:
        raise ToolFailed(f"{path.name} already exists; give the text to replace as `old`")
    return text


def _files(folder: Path) -> list[str]:
    names = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    )
    return [name for name in names if name != _HEAD][:_FILES_SHOWN]
