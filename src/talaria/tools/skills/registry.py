"""The skills of several folders; the first of a name wins, and new ones go to the first folder."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.core.files import FileCache
from talaria.core.text_formats import split_front_matter

if TYPE_CHECKING:  # loaded when skills have been installed
    from talaria.tools.skills.records import SkillRecords

HEAD = "SKILL.md"
RECORDS = ".installed.json"
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
    if not name and not document.name:
        raise ToolFailed(_explain_front_matter(text))
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


def _explain_front_matter(text: str) -> str:
    """Return what is wrong with the front matter of a SKILL.md without a name."""
    if not text.lstrip("\ufeff").startswith("---"):
        return "SKILL.md has no front matter: it must start with the lines `---`, `name: …`, `description: …`, `---`"
    if not split_front_matter(text)[0]:
        return "the front matter of SKILL.md isn't closed: add a line `---` after it"
    return "the front matter of SKILL.md has no `name:`"


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


class Skill(Struct, frozen=True):
    """A skill, its folder, and the root in which that was found."""

    folder: Path
    document: Document
    root: Path


class SkillRegistry(Struct, frozen=True):
    """All skills of some folders; those of an earlier folder hide later ones of the same name.

    Skills that are ``disabled``, and installed ones that nobody has confirmed, are known only to `list_all_skills`.
    """

    roots: tuple[Path, ...]
    disabled: Collection[str] = ()

    def list_skills(self) -> list[Skill]:
        """Return every enabled skill, sorted by name."""
        return [skill for skill in self.list_all_skills() if not self.find_problem(skill)]

    def list_all_skills(self) -> list[Skill]:
        """Return every skill, sorted by name."""
        found: dict[str, Skill] = {}
        for skill in self.find_all():
            found.setdefault(skill.document.name, skill)
        return [found[name] for name in sorted(found)]

    def find_all(self) -> Iterator[Skill]:
        """Yield every skill, also those that another hides, in the order of the roots."""
        for root in self.roots:
            for folder in _list_folders(root):
                skill = _read_skill(folder, root)
                if skill is not None:
                    yield skill

    def find_broken(self) -> Iterator[tuple[Path, Path, str]]:
        """Yield root, folder and problem of each SKILL.md that can't be used."""
        for root in self.roots:
            for folder in _list_folders(root):
                if _read_skill(folder, root) is None and (Path(folder) / HEAD).is_file():
                    yield root, Path(folder), _explain_document(Path(folder) / HEAD)

    def find_problem(self, skill: Skill) -> str:
        """Return why the agent doesn't see a skill, as a sentence; empty if it does."""
        name = skill.document.name
        if name in self.disabled:
            return f"It is switched off: `talaria skills enable {name}` switches it on."
        try:
            return self.records.find_problem(skill.folder.name) if self.is_installed(skill) else ""
        except ToolFailed as error:
            return f"{error}."

    def is_installed(self, skill: Skill) -> bool:
        """Return whether a skill was installed from a source."""
        root = self.roots[0]
        has_records = skill.folder.parent == root and os.path.lexists(f"{root}/{RECORDS}")
        return has_records and skill.folder.name in self.records.read_all()

    @property
    def records(self) -> "SkillRecords":
        """The records of installed skills."""
        from talaria.tools.skills.records import SkillRecords  # noqa: PLC0415 (loaded when skills have been installed)

        return SkillRecords(self.roots[0] / RECORDS)

    def find_skill(self, name: str) -> Skill:
        """Return one skill, or raise `ToolFailed` with the available names."""
        skills = {skill.document.name: skill for skill in self.list_skills()}
        if name not in skills:
            raise ToolFailed(f"there is no skill {name!r}; available: {', '.join(skills) or 'none'}")
        return skills[name]

    def view(self, name: str, file: str = "") -> str:
        """Return the text of a skill and the list of its files, or one of those files."""
        return self.view_skill(self.find_skill(name), file)

    def view_skill(self, skill: Skill, file: str = "") -> str:
        """Return the text of a skill and the list of its files, or one of those files."""
        if file and file != HEAD:
            return read_text(resolve_file(skill, file))
        others = _list_files(skill.folder)
        listed = f"\n\nFiles in {skill.folder}:\n" + "\n".join(others) if others else ""
        return f"{skill.document.body}{listed}"

    def is_own(self, skill: Skill) -> bool:
        """Return whether a skill is in the first folder, where new ones go."""
        return bool(self.roots) and skill.folder.resolve().is_relative_to(self.roots[0].resolve())


def format_index(roots: Sequence[Path], disabled: Collection[str] = ()) -> str:
    """Return a line per enabled skill, for a system prompt; those that don't fit are counted.

    Skills of earlier roots are preferred.
    """
    skills = SkillRegistry(tuple(roots), disabled).list_skills()
    kept: list[str] = []
    room = INDEX_LIMIT
    for skill in sorted(skills, key=lambda one: roots.index(one.root)):
        line = _format_line(skill)
        room -= len(line) + 1
        if room >= 0:
            kept.append(line)
    rest = len(skills) - len(kept)
    return "\n".join([*sorted(kept), *([f"… and {rest} more: call `skills` with action list"] if rest else [])])


def _format_line(skill: Skill) -> str:
    description = " ".join(skill.document.description.split())
    cut = description if len(description) <= _LINE_LIMIT else description[: _LINE_LIMIT - 1].rstrip() + "…"
    return f"{skill.document.name}: {cut}"


def _list_folders(root: Path) -> Iterator[str]:
    """Yield the folders that may contain a SKILL.md, including grouped ones; as strings, because there are many."""
    outer = _list_subfolders(str(root))
    yield from outer
    yield from sorted(folder for group in outer for folder in _list_subfolders(group))


def _list_subfolders(folder: str) -> list[str]:
    if not os.access(folder, os.F_OK):  # most of the usual folders don't exist
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError:
        return []


def _read_skill(folder: str, root: Path) -> Skill | None:
    try:
        document = _HEADS.get(f"{folder}/{HEAD}")
    except OSError:
        return None
    return Skill(Path(folder), document, root) if document else None


def _explain_document(path: Path) -> str:
    try:
        text = read_text(path)
        check_document(text, read_document(text).name)
    except ToolFailed as error:
        reason = str(error)
        return f"{reason[:1].upper()}{reason[1:]}."
    return ""


def _parse_document(text: str) -> Document | None:
    """Return the content of a SKILL.md, if it is valid."""
    try:
        document = read_document(text)
        check_name(document.name)
    except ToolFailed:
        return None
    return document


_HEADS = FileCache(_parse_document)


def resolve_file(skill: Skill, file: str) -> Path:
    """Return the path of a file of a skill; raises `ToolFailed` for one outside."""
    home = skill.folder.resolve()
    path = (home / file).resolve()
    if not path.is_relative_to(home) or path == home:
        raise ToolFailed(f"{file!r} is not inside the skill")
    return path


def read_text(path: Path) -> str:
    """Return the text of a file of a skill; raises `ToolFailed` if it can't be read or is too long."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailed(f"{path.name} can't be read as text") from error
    check_size(text)
    return text


def _list_files(folder: Path) -> list[str]:
    names = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    )
    return [name for name in names if name != HEAD][:_FILES_SHOWN]
