"""Rules of the memory: which entries are accepted and how many, and their part of the prompt."""

import re
import unicodedata
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from talaria.contracts.memory import MEMORY_KINDS, MemoryEntry, MemoryKind, MemoryProvider, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import ToolFailed

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


def what_is_wrong(text: str) -> str:
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


def _is_hidden(char: str) -> bool:
    if char in _JOINERS:
        return False
    # The supplement of variation selectors counts as marks, but can carry arbitrary bytes invisibly.
    return unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs"} or 0xE0100 <= ord(char) <= 0xE01EF


NAMES: dict[MemoryKind, str] = {"memory": "MEMORY.md", "user": "USER.md"}
LIMITS: dict[MemoryKind, int] = {"memory": 2_200, "user": 1_375}  # characters


_SEPARATOR = "\n§\n"
_TITLES: dict[MemoryKind, str] = {"memory": "Your notes", "user": "What you know about the person"}
_TITLES_IN_GROUPS: dict[MemoryKind, str] = {
    "memory": "Your notes on this group",
    "user": "What you know about the person from this group",
}
_OWNER = Viewer()
_NOWHERE = MemorySource()


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
        entry, texts = check_text(text), self._texts()
        if entry in texts:
            return f"Already saved. {self.fill(texts)}"
        self._check_room((*texts, entry), instead_of=texts)
        self.provider.add(self.viewer, self.kind, entry, self.source)
        return f"Added. {self.fill(self._texts())}"

    def replace(self, part: str, text: str) -> str:
        """Replace the entry that contains this text, or has this id."""
        entry, entries = check_text(text), self.entries()
        texts = tuple(one.text for one in entries)
        if entry in texts:
            return f"Already saved. {self.fill(texts)}"
        old = find_entry(entries, part)
        self._check_room(tuple(entry if one == old.text else one for one in texts), instead_of=texts)
        self.provider.replace(self.viewer, old, entry, self.source)
        return f"Replaced. {self.fill(self._texts())}"

    def remove(self, part: str) -> str:
        """Remove the entry that contains this text, or has this id."""
        self.provider.remove(self.viewer, find_entry(self.entries(), part))
        return f"Removed. {self.fill(self._texts())}"

    def fill(self, texts: Sequence[str]) -> str:
        """Return how full it is with these entries."""
        size = entries_size(texts)
        return f"{NAMES[self.kind]}: {len(texts)} entries, {size:,} of {self.limit:,} characters."

    def _texts(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.entries())

    def _check_room(self, texts: Sequence[str], *, instead_of: Sequence[str]) -> None:
        size = entries_size(texts)
        if size > self.limit and size >= entries_size(instead_of):
            raise ToolFailed(
                f"{NAMES[self.kind]} is full: this would make {size:,} of {self.limit:,} characters. Shorten "
                f"or remove an entry first. {self._advice()} Entries:\n{_listed(instead_of)}"
            )

    def _advice(self) -> str:
        """Return how a person can make room, for the agent to pass on; slash commands are the owner's."""
        if self.viewer.owner and not self.viewer.audience:
            return f"The owner can also shorten it with `talaria memory consolidate --person {self.viewer.owner}`."
        return "The owner can also shorten it with `/memory consolidate`, and sees the proposal first."


class Memories(Struct, frozen=True):
    """The memory of all people, with the limits of the settings."""

    provider: MemoryProvider
    limits: Mapping[MemoryKind, int] = field(default_factory=lambda: LIMITS)

    def notebook(self, viewer: Viewer, kind: MemoryKind, source: MemorySource = _NOWHERE) -> Notebook:
        """Return the entries of one kind for a person in a private chat, or in a group."""
        return Notebook(self.provider, viewer, kind, self.limits[kind], source)

    def snapshot(self, viewer: Viewer = _OWNER) -> str:
        """Return all entries for a system prompt; empty if there are none."""
        titles = _TITLES_IN_GROUPS if viewer.audience else _TITLES
        entries = self.provider.entries(viewer)
        books = ((kind, [one.text for one in entries if one.kind == kind]) for kind in MEMORY_KINDS)
        return "\n\n".join(f"## {titles[kind]}\n" + _SEPARATOR.join(texts) for kind, texts in books if texts)


def find_entry(entries: Sequence[MemoryEntry], part: str) -> MemoryEntry:
    """Return the one entry that contains a text, or has it as its id; raises `ToolFailed`."""
    wanted = part.strip()
    exact = [one for one in entries if wanted in (one.text, one.id)]
    found = exact[:1] or [one for one in entries if wanted and wanted in one.text]
    if len(found) == 1:
        return found[0]
    problem = "no entry contains" if not found else f"{len(found)} entries contain"
    listed = _listed([one.text for one in entries])
    raise ToolFailed(f"{problem} {wanted!r}; `old` must match exactly one of these entries:\n{listed}")


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
    if wrong := what_is_wrong(entry):
        raise ToolFailed(f"not saved: {wrong}")
    return entry


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts) or "(nothing)"


def entries_size(texts: Sequence[str]) -> int:
    """Return the number of characters that entries take in a prompt."""
    return len(_SEPARATOR.join(texts))
