"""Writer of what an import puts into the profile's files: settings, keys, persona, memory, skills, commands."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from talaria.app.session.memory import open_memories
from talaria.contracts.imports import ForeignHome, ForeignSkill, ImportItem, ImportKind, ImportOutcome
from talaria.contracts.memory import MemoryKind, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import TalariaError, ToolFailed
from talaria.core.formatting import pluralize
from talaria.core.text_formats import split_front_matter
from talaria.settings.atomic_files import make_folder, read_file, write_file
from talaria.settings.config_file import read_source
from talaria.settings.edit import compute_file_version, edit_values
from talaria.settings.load import load
from talaria.settings.profiles import Profile
from talaria.settings.schema import format_key, split_key
from talaria.settings.secrets import Secrets, read_secrets, store_secret
from talaria.tools.memory.notebook import find_text_problem, measure_entries
from talaria.tools.skills.registry import SIZE_LIMIT, Document, check_document, read_document, write_document

_MAX_SKILL_FILES = 500
_MAX_SKILL_BYTES = 10_000_000
_HEAD = "SKILL.md"


class ProfileWriter:
    """Writes into one profile; what is there already is never replaced.

    With ``dry_run`` nothing is written, and the items say what would happen.
    """

    def __init__(self, profile: Profile, environment: Mapping[str, str], *, dry_run: bool) -> None:
        self._profile = profile
        self._environment = environment
        self._dry_run = dry_run

    def write(self, home: ForeignHome, agent: str, *, with_keys: bool) -> Iterator[ImportItem]:
        """Import everything of a home that belongs in files, and yield what happened."""
        if with_keys:
            yield from self._write_keys(home.keys)
        yield from self._write_settings(home.settings)
        yield from self._write_servers(home.servers, home.keys, with_keys=with_keys)
        yield from self._write_text("persona", "SOUL.md", self._profile.folder / "SOUL.md", home.persona)
        for name, text in home.personalities.items():
            path = self._profile.folder / "personalities" / f"{name}.md"
            yield from self._write_text("persona", f"personality {name}", path, text)
        for name, text in home.commands.items():
            path = self._profile.folder / "commands" / f"{name}.md"
            yield from self._write_text("commands", f"/{name}", path, text)
        for skill in home.skills:
            yield self._write_skill(skill)
        rest: dict[str, str] = dict(home.notes)
        yield from self._write_memory("memory", home.memory, rest)
        yield from self._write_memory("user", home.facts, rest)
        if rest:
            yield self._write_notes(agent, rest)

    def _write_keys(self, keys: Mapping[str, str]) -> Iterator[ImportItem]:
        secrets = read_secrets(self._profile, self._environment)
        for name, value in keys.items():
            present = secrets.stored.get(name)
            if present is not None and present.value:
                same = present.value == value
                yield _make_item(
                    "keys", name, "unchanged" if same else "skipped", "" if same else "It has a value here."
                )
                continue
            try:
                if not self._dry_run:
                    store_secret(self._profile, name, value)
            except TalariaError as error:
                yield _make_item("keys", name, "skipped", str(error))
            else:
                yield _make_item("keys", name, "imported")

    def _write_settings(self, settings: Mapping[str, Any]) -> Iterator[ImportItem]:
        for key, value in settings.items():
            present = self._get_setting(key)
            if present is not None and isinstance(present, list) and isinstance(value, list):
                merged = [*present, *(one for one in value if one not in present)]
                yield self._set("settings", key, {key: merged}, "unchanged" if merged == present else "changed")
            elif present is not None:
                same = present == value
                detail = "" if same else f"It is set to {present} here; {value} was found."
                yield _make_item("settings", key, "unchanged" if same else "skipped", detail)
            else:
                yield self._set("settings", key, {key: value}, "imported", _show(value))

    def _write_servers(
        self, servers: Mapping[str, Mapping[str, Any]], keys: Mapping[str, str], *, with_keys: bool
    ) -> Iterator[ImportItem]:
        stored = read_secrets(self._profile, self._environment)
        for name, fields in servers.items():
            present = self._get_setting(format_key(("mcp", name)))
            if present is not None:
                same = present == fields
                detail = "" if same else "A server of this name is set up here."
                yield _make_item("MCP servers", name, "unchanged" if same else "skipped", detail)
                continue
            missing = _find_missing_keys(fields, keys if with_keys else {}, stored)
            detail = f"It needs {', '.join(missing)}: `talaria config set {missing[0]}`." if missing else ""
            values = {format_key(("mcp", name, field)): value for field, value in fields.items()}
            yield self._set("MCP servers", name, values, "imported", detail)

    def _set(
        self, kind: ImportKind, name: str, values: Mapping[str, Any], outcome: ImportOutcome, detail: str = ""
    ) -> ImportItem:
        if outcome == "unchanged" or self._dry_run:
            return _make_item(kind, name, outcome, detail)
        try:
            version = compute_file_version(read_source(self._profile.config_file).text)
            edit_values(self._profile, values, version)
        except TalariaError as error:
            return _make_item(kind, name, "skipped", str(error))
        return _make_item(kind, name, outcome, detail)

    def _get_setting(self, key: str) -> Any:
        found: Any = read_source(self._profile.config_file).table
        for name in split_key(key):
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _write_text(self, kind: ImportKind, name: str, path: Path, text: str) -> Iterator[ImportItem]:
        if not text.strip():
            return
        content = text if text.endswith("\n") else f"{text}\n"
        present = read_file(path)
        if present is not None:
            same = present.decode(errors="replace").strip() == content.strip()
            detail = "" if same else f"{path.name} exists here and is different."
            yield _make_item(kind, name, "unchanged" if same else "skipped", detail)
            return
        if not self._dry_run:
            make_folder(path.parent)
            write_file(path, content)
        yield _make_item(kind, name, "imported")

    def _write_memory(self, book: MemoryKind, texts: tuple[str, ...], rest: dict[str, str]) -> Iterator[ImportItem]:
        """Add entries to a memory file while there is room; the others go to ``rest``, by file name."""
        settings = load(self._profile, self._environment).settings
        source = MemorySource(surface="import")
        notebook = open_memories(settings, self._profile).open_notebook(Viewer(), book, source)
        entries = tuple(one.text for one in notebook.entries())
        for text in texts:
            entry = " ".join(text.split())
            if entry in entries:
                yield _make_item("memory", _shorten(entry), "unchanged")
            elif problem := find_text_problem(entry):
                yield _make_item("memory", _shorten(entry), "skipped", f"{problem[:1].upper()}{problem[1:]}.")
            elif measure_entries((*entries, entry)) > notebook.limit:
                rest[f"{book}.md"] = "\n\n".join(filter(None, (rest.get(f"{book}.md"), text)))
                yield _make_item(
                    "memory", _shorten(entry), "changed", "The memory is full: it is in the skill with notes."
                )
            else:
                entries = (*entries, entry)
                if not self._dry_run:
                    notebook.add(entry)
                yield _make_item("memory", _shorten(entry), "imported")

    def _write_notes(self, agent: str, notes: Mapping[str, str]) -> ImportItem:
        """Store texts that are too long for the memory as a skill, which the agent reads when it needs them."""
        name = f"notes-from-{agent}"
        folder = self._profile.skills_folder / name
        names = ", ".join(sorted(notes))
        body = f"Earlier notes, imported from {agent}. Read the file that fits the question: {names}"
        document = Document(
            name, f"Notes and daily logs from {agent}. Read them when the past matters.", body[:SIZE_LIMIT]
        )
        files = {_HEAD: write_document(document)} | dict(notes)
        changed = {file: text for file, text in files.items() if read_file(folder / file) != text.encode()}
        if not changed:
            return _make_item("memory", name, "unchanged")
        if not self._dry_run:
            for file, text in changed.items():
                make_folder((folder / file).parent)
                write_file(folder / file, text)
        return _make_item("memory", name, "imported", f"{pluralize(len(notes), 'text')}, as a skill.")

    def _write_skill(self, skill: ForeignSkill) -> ImportItem:
        try:
            text = (skill.folder / _HEAD).read_text(encoding="utf-8")
            name = make_skill_name(read_document(text).name or skill.name)
            renamed = name != read_document(text).name
            head = rename_skill(text, name) if renamed else text
            check_document(head, name)
            files = list_skill_files(skill.folder)
        except (ToolFailed, OSError, UnicodeDecodeError) as error:
            return _make_item("skills", skill.name, "skipped", _format_sentence(error))
        target = self._profile.skills_folder / name
        if (target / _HEAD).exists():
            same = read_file(target / _HEAD) == head.encode()
            detail = "" if same else "A skill of this name exists here and is different."
            return _make_item("skills", name, "unchanged" if same else "skipped", detail)
        if not self._dry_run:
            self._copy_skill(skill.folder, target, files, head)
        detail = f"Its name was {skill.name}; names have lower-case letters, digits and hyphens." if renamed else ""
        return _make_item("skills", name, "changed" if renamed else "imported", detail)

    def _copy_skill(self, source: Path, target: Path, files: list[Path], head: str) -> None:
        """Copy a skill; the folder appears when it is complete."""
        draft = target.with_name(f".{target.name}.importing")
        shutil.rmtree(draft, ignore_errors=True)
        for file in files:
            copy = draft / file.relative_to(source)
            make_folder(copy.parent)
            shutil.copyfile(file, copy)
            copy.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
        write_file(draft / _HEAD, head)
        draft.rename(target)


def make_skill_name(name: str) -> str:
    """Return a valid name for a skill: lower-case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].strip("-")


def rename_skill(text: str, name: str) -> str:
    """Return the text of a SKILL.md with another name in its front matter."""
    if "name" in split_front_matter(text)[0]:
        return re.sub(r"(?m)^name:.*$", f"name: {name}", text, count=1)
    return re.sub(r"\A(\ufeff?---[ \t]*\r?\n)", rf"\g<1>name: {name}\n", text, count=1)


def list_skill_files(folder: Path) -> list[Path]:
    """Return the files of a skill without links and caches; raises `ToolFailed` if they are too many or too large."""
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not path.is_symlink()
        and path.resolve().is_relative_to(folder.resolve())
        and not {"__pycache__", ".git", "node_modules"} & set(path.relative_to(folder).parts)
    ]
    if len(found) > _MAX_SKILL_FILES or sum(path.stat().st_size for path in found) > _MAX_SKILL_BYTES:
        raise ToolFailed(f"it has more than {_MAX_SKILL_FILES} files or {_MAX_SKILL_BYTES:,} bytes")
    return found


def _find_missing_keys(fields: Mapping[str, Any], keys: Mapping[str, str], stored: Secrets) -> list[str]:
    texts = [*fields.get("env", {}).values(), *fields.get("headers", {}).values()]
    names = [name for text in texts for name in re.findall(r"\$\{(\w+)\}", str(text))]
    return [name for name in dict.fromkeys(names) if name not in keys and not stored.get(name)]


def _make_item(kind: ImportKind, name: str, outcome: ImportOutcome, detail: str = "") -> ImportItem:
    return ImportItem(kind, name, outcome, detail)


def _show(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def _format_sentence(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{reason[:1].upper()}{reason[1:]}.".replace("..", ".")
