"""The memory tool, the files of its entries, which people can edit, and their part of the prompt."""

import asyncio
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from talaria.contracts.memory import MEMORY_KINDS, MemoryAccount, MemoryEntry, MemoryKind, MemoryProvider, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.files import FileCache
from talaria.tools.atomic_files import sole_writer, write_whole
from talaria.tools.workspace import find_group_folder, find_person_folder, list_people

_JOINERS = "\u200c\u200d"  # join emoji, and Persian or Indic letters
# Used with `re.search`, which compiles and caches them: most sessions never write to a memory.
_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"\b(sk|pk|rk)[-_](live|test|ant|or|proj)?[-_]?[A-Za-z0-9_-]{16,}",
    r"\b(gh[opsru]_|github_pat_|glpat-|xox[abeoprs]-|AKIA|ASIA|AIza|ya29\.|hf_|npm_)[A-Za-z0-9_-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.",
    r"://[^\s/:@]+:[^\s/@]{3,}@",
    (
        r"(?i)\b(password|passwort|passwd|passphrase|secret|api[ _-]?key|access[ _-]?key|token)\s*(is|=|:)\s*"
        r"(?=\S*[\d_#$%&*+=@^~])\S{6,}"
    ),
)
_INSTRUCTIONS = (
    r"\b(ignore|disregard|forget|override)\b.{0,40}\b(instructions?|prompts?|rules?|guidelines?|messages?)\b",
    r"\byou are (now|no longer)\b",
    r"\b(new|real|actual|updated) (system )?(instructions?|prompt)\s*:",
    r"\bsystem prompt\b",
    r"\b(do not|don't|never) (tell|inform|mention|reveal)\b.{0,30}\b(user|person|owner|human)\b",
    r"\b(without|bypass\w*|skip\w*)\b.{0,20}\b(asking|approval|confirmation|permission)\b",
    r"</?(system|assistant|user|instructions?|tool_call)>|<\|[a-z_]+\|>|\[/?INST\]",
    r"\b(curl|wget)\b.{0,80}\$\{?\w*(key|token|secret|password)",
    r"\b(cat|send|upload|post|exfiltrate)\b.{0,40}(\.env\b|id_rsa|\.ssh/|credentials)",
)
SEPARATOR = "\n§\n"
NAMES: dict[MemoryKind, str] = {"memory": "MEMORY.md", "user": "USER.md"}
LIMITS: dict[MemoryKind, int] = {"memory": 2_200, "user": 1_375}  # characters
_TITLES: dict[MemoryKind, str] = {"memory": "Your notes", "user": "What you know about the person"}
_TITLES_IN_GROUPS: dict[MemoryKind, str] = {
    "memory": "Your notes on this group",
    "user": "What you know about the person from this group",
}
_OWNER = Viewer()
_NOWHERE = MemorySource()
_ORIGINS = "entries.json"
_BY_HAND = MemorySource(surface="file")


def find_text_problem(text: str) -> str:
    """Return why a text must not be saved, or an empty string."""
    if hidden := {char for char in text if _is_hidden(char)}:
        names = ", ".join(sorted(f"U+{ord(char):04X}" for char in hidden))
        return f"it contains invisible characters ({names})"
    if any(re.search(pattern, text) for pattern in _SECRETS):
        return "it looks like a secret; store secrets with `talaria config set`"
    folded = unicodedata.normalize("NFKC", text)
    if any(re.search(pattern, folded, re.IGNORECASE) for pattern in _INSTRUCTIONS):
        return "it reads like instructions to an agent; save only facts and preferences"
    return ""


class Notebook(Struct, frozen=True):
    """The entries of one kind for one viewer, of at most ``limit`` characters; changes come from ``source``."""

    provider: MemoryProvider
    viewer: Viewer
    kind: MemoryKind
    limit: int
    source: MemorySource = _NOWHERE

    def entries(self) -> tuple[MemoryEntry, ...]:
        """Return the entries, oldest first."""
        return tuple(one for one in self.provider.entries(self.viewer) if one.kind == self.kind)

    def add(self, text: str) -> str:
        """Append an entry, unless it already exists."""
        entry, texts = check_text(text), self._read_texts()
        if entry in texts:
            return f"Already saved. {self.describe_fill(texts)}"
        self._check_room((*texts, entry), instead_of=texts)
        self.provider.add(self.viewer, self.kind, entry, self.source)
        return f"Added. {self.describe_fill(self._read_texts())}"

    def replace(self, part: str, text: str) -> str:
        """Replace the entry that contains this text, or has this id."""
        entry, entries = check_text(text), self.entries()
        texts = tuple(one.text for one in entries)
        if entry in texts:
            return f"Already saved. {self.describe_fill(texts)}"
        old = find_entry(entries, part)
        self._check_room(tuple(entry if one == old.text else one for one in texts), instead_of=texts)
        self.provider.replace(self.viewer, old, entry, self.source)
        return f"Replaced. {self.describe_fill(self._read_texts())}"

    def remove(self, part: str) -> str:
        """Remove the entry that contains this text, or has this id."""
        self.provider.remove(self.viewer, find_entry(self.entries(), part))
        return f"Removed. {self.describe_fill(self._read_texts())}"

    def describe_fill(self, texts: Sequence[str]) -> str:
        """Return how full it is with these entries."""
        size = measure_entries(texts)
        return f"{NAMES[self.kind]}: {len(texts)} entries, {size:,} of {self.limit:,} characters."

    def _read_texts(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.entries())

    def _check_room(self, texts: Sequence[str], *, instead_of: Sequence[str]) -> None:
        size = measure_entries(texts)
        if size > self.limit and size >= measure_entries(instead_of):
            raise ToolFailed(
                f"{NAMES[self.kind]} is full: this would make {size:,} of {self.limit:,} characters. Shorten "
                f"or remove an entry first. {self._suggest_shortening()}\nEntries:\n{_format_list(instead_of)}"
            )

    def _suggest_shortening(self) -> str:
        """Return how a person can make room, for the agent to pass on; slash commands are the owner's."""
        if self.viewer.owner and not self.viewer.audience:
            return f"The owner can also shorten it with `talaria memory consolidate --person {self.viewer.owner}`."
        return "The owner can also shorten it with `/memory consolidate`, and sees the proposal first."


class Memories(Struct, frozen=True):
    """The memory of all people, with the limits of the settings."""

    provider: MemoryProvider
    limits: Mapping[MemoryKind, int] = field(default_factory=lambda: LIMITS)

    def open_notebook(self, viewer: Viewer, kind: MemoryKind, source: MemorySource = _NOWHERE) -> Notebook:
        """Return the entries of one kind for a person in a private chat, or in a group."""
        return Notebook(self.provider, viewer, kind, self.limits[kind], source)

    def snapshot(self, viewer: Viewer = _OWNER) -> str:
        """Return all entries for a system prompt; empty if there are none."""
        titles = _TITLES_IN_GROUPS if viewer.audience else _TITLES
        entries = self.provider.entries(viewer)
        books = ((kind, [one.text for one in entries if one.kind == kind]) for kind in MEMORY_KINDS)
        return "\n\n".join(f"## {titles[kind]}\n" + SEPARATOR.join(texts) for kind, texts in books if texts)


def find_entry(entries: Sequence[MemoryEntry], part: str) -> MemoryEntry:
    """Return the one entry that contains a text, or has it as its id; raises `ToolFailed`."""
    passage = part.strip()
    exact = [one for one in entries if passage in (one.text, one.id)]
    found = exact[:1] or [one for one in entries if passage and passage in one.text]
    if len(found) == 1:
        return found[0]
    problem = "no entry contains" if not found else f"{len(found)} entries contain"
    listed = _format_list([one.text for one in entries])
    raise ToolFailed(f"{problem} {passage!r}; `old` must match exactly one of these entries:\n{listed}")


def rank_by_words(query: str, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
    """Return the entries that contain words of a query, those with most of them first."""
    words = set(re.findall(r"\w+", query.casefold()))
    scored = [(len(words & set(re.findall(r"\w+", one.text.casefold()))), one) for one in entries]
    hits = [(count or (0.5 if query.casefold() in one.text.casefold() else 0), one) for count, one in scored]
    return [one for count, one in sorted(hits, key=lambda hit: -hit[0]) if count]


def check_text(text: str) -> str:
    """Return the text of an entry on one line; raises `ToolFailed` if it must not be saved."""
    entry = " ".join(text.split())
    if entry in {"", "§"}:
        raise ToolFailed("nothing to save: give `text`")
    if wrong := find_text_problem(entry):
        raise ToolFailed(f"not saved: {wrong}")
    return entry


def measure_entries(texts: Sequence[str]) -> int:
    """Return the number of characters that entries take in a prompt."""
    return len(SEPARATOR.join(texts))


class _Origin(Struct, frozen=True):
    at: datetime
    source: MemorySource
    owner: str = ""
    audience: str = ""


class FileMemory(Struct, frozen=True):
    """Two files for each person, each group and each person in a group. Implements `MemoryProvider`.

    The files have the entries, and ``entries.json`` next to them the time, source and owner of each; an entry that a
    person wrote into a file has the time of the file. Each change reads and writes a file whole, under a lock.
    """

    folder: Path

    @property
    def can_rewrite(self) -> bool:
        """Return that a file can be rewritten."""
        return True

    def entries(self, viewer: Viewer) -> Sequence[MemoryEntry]:
        """Return the entries of a viewer, oldest first within a kind."""
        return [entry for kind in MEMORY_KINDS for entry in self._read(viewer, kind)]

    def read_texts(self, viewer: Viewer, kind: MemoryKind) -> tuple[str, ...]:
        """Return the texts of one kind, without times and sources."""
        return _TEXTS.get(f"{self._find_folder(viewer, kind)}/{NAMES[kind]}") or ()

    def add(self, viewer: Viewer, kind: MemoryKind, text: str, source: MemorySource) -> None:
        """Append an entry, unless it exists."""
        folder = self._find_folder(viewer, kind)
        with sole_writer(folder):
            texts = self.read_texts(viewer, kind)
            if text not in texts:
                self._write(viewer, kind, (*texts, text), source)

    def replace(self, viewer: Viewer, entry: MemoryEntry, text: str, source: MemorySource) -> None:
        """Replace an entry in its place."""
        with sole_writer(self._find_folder(viewer, entry.kind)):
            texts = self.read_texts(viewer, entry.kind)
            if entry.text not in texts:
                raise ToolFailed("the entry was changed meanwhile; look again")
            changed = dict.fromkeys(text if one == entry.text else one for one in texts)
            self._write(viewer, entry.kind, tuple(changed), source)

    def remove(self, viewer: Viewer, entry: MemoryEntry) -> None:
        """Remove an entry."""
        with sole_writer(self._find_folder(viewer, entry.kind)):
            texts = self.read_texts(viewer, entry.kind)
            if entry.text in texts:
                self._write(viewer, entry.kind, tuple(one for one in texts if one != entry.text), _BY_HAND)

    def rewrite(
        self, viewer: Viewer, kind: MemoryKind, before: Sequence[MemoryEntry], after: Sequence[MemoryEntry]
    ) -> None:
        """Replace all entries of a file, if they still are ``before``."""
        with sole_writer(self._find_folder(viewer, kind)):
            if self.read_texts(viewer, kind) != tuple(one.text for one in before):
                raise ToolFailed("the memory was changed meanwhile")
            self._write(viewer, kind, tuple(one.text for one in after), _BY_HAND, given=after)

    def people(self) -> Sequence[str]:
        """Return the people who have files with entries."""
        return [
            name
            for name in list_people(self.folder)
            if any(self.read_texts(Viewer(name), kind) for kind in MEMORY_KINDS)
        ]

    def _find_folder(self, viewer: Viewer, kind: MemoryKind) -> Path:
        if viewer.audience and kind == "memory":
            return find_group_folder(viewer.audience, self.folder)
        return find_person_folder(viewer, self.folder)

    def _read(self, viewer: Viewer, kind: MemoryKind) -> Iterable[MemoryEntry]:
        folder, texts = self._find_folder(viewer, kind), self.read_texts(viewer, kind)
        origins = _read_origins(folder) if texts else {}
        for text in texts:
            entry = MemoryEntry(kind=kind, text=text, owner=viewer.owner, audience=viewer.audience)
            origin = origins.get(entry.id)
            at = origin.at if origin else _read_modified_at(folder / NAMES[kind])
            yield msgspec.structs.replace(entry, at=at, source=origin.source if origin else _BY_HAND)

    def _write(
        self,
        viewer: Viewer,
        kind: MemoryKind,
        texts: tuple[str, ...],
        source: MemorySource,
        *,
        given: Sequence[MemoryEntry] = (),
    ) -> None:
        """Write a file and the origins of its entries; those of new entries are as ``given``, or now and ``source``."""
        folder = self._find_folder(viewer, kind)
        known = {entry.id: entry for entry in self._read(viewer, kind)}
        whole = {entry.id: entry for entry in given} | known
        now = datetime.now(UTC)
        origins = {name: one for name, one in _read_origins(folder).items() if name not in known}
        for text in texts:
            entry = MemoryEntry(kind=kind, text=text)
            old = whole.get(entry.id)
            at, whence = (old.at or now, old.source) if old else (now, source)
            origins[entry.id] = _Origin(at, whence, viewer.owner, viewer.audience)
        # A crash in between leaves origins of entries that don't exist, which nobody reads.
        write_whole(folder / _ORIGINS, msgspec.json.format(msgspec.json.encode(origins), indent=1).decode() + "\n")
        write_whole(folder / NAMES[kind], SEPARATOR.join(texts) + "\n" if texts else "")


def open_memory(account: MemoryAccount) -> FileMemory:
    """Return the memory in the files of a profile."""
    return FileMemory(account.folder)


def split_texts(content: str) -> tuple[str, ...]:
    """Return the entries of a file, as a person may have written it."""
    lines = "\n".join("§" if line.strip() == "§" else line for line in content.splitlines())
    return tuple(dict.fromkeys(text.strip() for text in f"\n{lines}\n".split(SEPARATOR) if text.strip()))


_TEXTS = FileCache(split_texts)


def _decode_origins(content: str) -> dict[str, _Origin]:
    try:
        return msgspec.json.decode(content, type=dict[str, _Origin])
    except msgspec.DecodeError:  # edited by hand: the entries themselves are in the other file
        return {}


_KNOWN_ORIGINS = FileCache(_decode_origins)


class MemoryArguments(Struct, frozen=True):
    """An entry to add, replace or remove."""

    action: Literal["add", "replace", "remove"]
    text: Annotated[str, Meta(description="New entry, one paragraph")] = ""
    old: Annotated[str, Meta(description="Part of the entry to change or remove")] = ""
    book: Annotated[MemoryKind, Meta(description="user: about the person")] = "memory"


class Memory:
    """Entries for each person and each group: notes on the work, and facts about the person."""

    name = "memory"
    description = "Save lasting facts and preferences for later conversations."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = MemoryArguments

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def proposed_action(self, arguments: MemoryArguments) -> ProposedAction:
        """Describe the change."""
        return ProposedAction(
            "other", f"{arguments.action} in {NAMES[arguments.book]}: {arguments.text or arguments.old}"
        )

    async def run(self, arguments: MemoryArguments, call: Call) -> ToolOutput:
        """Change one entry and report how full the memory is."""
        source = MemorySource(surface=call.context.source, session=str(call.session_id))
        book = self._memories.open_notebook(Viewer(call.owner, call.audience), arguments.book, source)
        return ToolOutput(await asyncio.to_thread(_change_entry, book, arguments))


def _is_hidden(char: str) -> bool:
    if char in _JOINERS:
        return False
    # The supplement of variation selectors counts as marks, but can carry arbitrary bytes invisibly.
    return unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs"} or 0xE0100 <= ord(char) <= 0xE01EF


def _format_list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts) or "(nothing)"


def _read_origins(folder: Path) -> dict[str, _Origin]:
    return _KNOWN_ORIGINS.get(f"{folder}/{_ORIGINS}") or {}


def _read_modified_at(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    except OSError:
        return None


def _change_entry(book: Notebook, arguments: MemoryArguments) -> str:
    match arguments.action:
        case "add":
            return book.add(arguments.text)
        case "replace":
            return book.replace(arguments.old, arguments.text)
        case "remove":
            return book.remove(arguments.old or arguments.text)
