"""Changes of skills: create, patch, replace, archive and delete them."""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.tools.atomic_files import sole_writer, write_whole
from talaria.tools.skills.registry import (
    HEAD,
    Document,
    Skill,
    SkillRegistry,
    check_document,
    check_size,
    read_document,
    read_text,
    resolve_file,
    write_document,
)

ARCHIVE = ".archive"  # folder of removed skills in that of the profile


class SkillEditor(Struct, frozen=True):
    """Editor of the skills in a registry; new ones go to its first folder.

    A change of an installed skill that the agent may see counts as confirmed: a person has made or approved it.
    """

    registry: SkillRegistry

    def create(self, document: Document) -> str:
        """Create a skill in the first folder."""
        self.create_from(document.name, write_document(document))
        return f"Created {document.name}."

    def create_from(self, name: str, text: str) -> None:
        """Create a skill with this SKILL.md in the first folder."""
        check_document(text, name)
        if not self.registry.roots:
            raise ToolFailed("there is no skills folder")
        if not (self.registry.roots[0] / name).exists():
            self.registry.records.remove(name)
        with sole_writer(self.registry.roots[0]):
            self._refuse_another(read_document(text))
            folder = self.registry.roots[0] / name
            folder.mkdir(exist_ok=True)
            write_whole(folder / HEAD, text, mode=0o644)

    def read_source(self, name: str) -> str:
        """Return the whole SKILL.md of a skill."""
        return read_text(self._find_own(name).folder / HEAD)

    def write_source(self, name: str, before: str, text: str) -> None:
        """Replace the SKILL.md of a skill that is ``before`` until now, or create a skill if that is empty."""
        text = f"{text.strip()}\n"
        check_document(text, name)
        if not before:
            self.create_from(name, text)
            return
        skill = self._find_own(name)
        was_confirmed = not self.registry.records.find_problem(skill.folder.name)
        path = skill.folder / HEAD
        with sole_writer(path.parent.parent):
            if read_text(path) != before:
                raise ToolFailed(f"skill {name} was changed in the meantime; load it again")
            write_whole(path, text, mode=0o644)
        if was_confirmed:
            self.registry.records.confirm(skill.folder.name)

    def patch(self, name: str, old: str, new: str, file: str = "") -> str:
        """Replace the only occurrence of ``old`` in a file of a skill; without ``old``, create a file."""
        skill = self.registry.find_skill(name)
        path = resolve_file(skill, file or HEAD)
        with sole_writer(skill.folder.parent):
            _, text = self.preview_patch(name, old, new, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text, mode=0o644)
        if self.registry.is_installed(skill):
            self.registry.records.confirm(skill.folder.name)
        return f"Wrote {file or HEAD} of {name}."

    def preview_patch(self, name: str, old: str, new: str, file: str = "") -> tuple[str, str]:
        """Return the text of a file of a skill before and after a patch; raises `ToolFailed` if it doesn't apply."""
        skill = self.registry.find_skill(name)
        path = resolve_file(skill, file or HEAD)
        before = read_text(path) if path.exists() or old else ""
        text = _replace_once(before, old, new) if old else _check_new_text(path, new)
        if path.name == HEAD and path.parent == skill.folder.resolve():
            check_document(text, name)
        check_size(text)
        return before, text

    def archive(self, name: str) -> Path:
        """Move a skill of the first folder into the archive and return its new folder."""
        skill = self._find_own(name)
        target = self.registry.roots[0] / ARCHIVE / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        with sole_writer(self.registry.roots[0]):
            target.parent.mkdir(exist_ok=True)
            skill.folder.rename(target)
        self.registry.records.remove(skill.folder.name)
        return target

    def delete(self, name: str) -> None:
        """Delete a skill of the first folder."""
        import shutil  # noqa: PLC0415 (loaded when a skill is deleted)

        skill = self._find_own(name)
        with sole_writer(self.registry.roots[0]):
            doomed = skill.folder.rename(self.registry.roots[0] / f".{name}.removed")
            shutil.rmtree(doomed)
        self.registry.records.remove(skill.folder.name)

    def _find_own(self, name: str) -> Skill:
        """Return a skill of the first folder, or raise `ToolFailed`."""
        for skill in self.registry.list_all_skills():
            if skill.document.name == name and self.registry.is_own(skill):
                return skill
        raise ToolFailed(f"there is no skill {name!r} that can be edited here")

    def _refuse_another(self, document: Document) -> None:
        for skill in self.registry.list_all_skills():
            if skill.document.name == document.name and skill.document != document:
                raise ToolFailed(f"skill {document.name} already exists; patch it, or choose another name")


def _replace_once(text: str, old: str, new: str) -> str:
    if new and new in text and old not in text.replace(new, ""):
        return text
    if (count := text.count(old)) != 1:
        raise ToolFailed(f"`old` occurs {count} times; it must occur exactly once")
    return text.replace(old, new)


def _check_new_text(path: Path, text: str) -> str:
    if path.exists() and read_text(path) != text:
        raise ToolFailed(f"{path.name} already exists; give the text to replace as `old`")
    return text
