"""Memory files: bounded lists of entries, each a paragraph, separated by a line "§"; and their part of the prompt."""

import re
import unicodedata
from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import ToolFailed
from talaria.core.file_cache import FileCache
from talaria.tools.atomic_files import sole_writer, write_whole
from talaria.tools.workspace import folder_of, group_folder

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


Book = Literal["memory", "user"]


LIMITS: dict[Book, int] = {"memory": 2_200, "user": 1_375}  # characters


FILES: dict[Book, str] = {"memory": "MEMORY.md", "user": "USER.md"}


_SEPARATOR = "\n§\n"
_TITLES: dict[Book, str] = {"memory": "Your notes", "user": "What you know about the person"}
_TITLES_IN_GROUPS: dict[Book, str] = {
    "memory": "Your notes on this group",
    "user": "What you know about the person from this group",
}
_OWNER = Viewer()


class Notebook(Struct, frozen=True):
    """One of two memory files; each change reads and writes it whole, under a lock."""

    folder: Path
    book: Book

    @property
    def limit(self) -> int:
        """Return the maximum number of characters."""
        return LIMITS[self.book]

    def entries(self) -> tuple[str, ...]:
        """Return the entries, oldest first."""
        return _BOOKS.get(f"{self.folder}/{FILES[self.book]}") or ()

    def add(self, text: str) -> str:
        """Append an entry, unless it already exists."""
        entry = _checked(text)
        with sole_writer(self.folder):
            entries = self.entries()
            if entry in entries:
                return f"Already saved. {self.fill(entries)}"
            return f"Added. {self._keep((*entries, entry), instead_of=entries)}"

    def replace(self, part: str, text: str) -> str:
        """Replace the entry that contains this text."""
        entry = _checked(text)
        with sole_writer(self.folder):
            entries = self.entries()
            if entry in entries:
                return f"Already saved. {self.fill(entries)}"
            old = _the_one(entries, part)
            new = tuple(entry if one == old else one for one in entries)
            return f"Replaced. {self._keep(new, instead_of=entries)}"

    def remove(self, part: str) -> str:
        """Remove the entry that contains this text."""
        with sole_writer(self.folder):
            entries = self.entries()
            old = _the_one(entries, part)
            return f"Removed. {self._keep(tuple(one for one in entries if one != old), instead_of=entries)}"

    def fill(self, entries: tuple[str, ...]) -> str:
        """Return how full the file is with these entries."""
        size = entries_size(entries)
        return f"{FILES[self.book]}: {len(entries)} entries, {size:,} of {self.limit:,} characters."

    def _keep(self, entries: tuple[str, ...], *, instead_of: tuple[str, ...]) -> str:
        size = entries_size(entries)
        if size > self.limit and size >= entries_size(instead_of):
            raise ToolFailed(
                f"{FILES[self.book]} is full: this would make {size:,} of {self.limit:,} characters. Shorten "
                f"or remove an entry first. Entries:\n{_listed(instead_of)}"
            )
        write_whole(self.folder / FILES[self.book], _SEPARATOR.join(entries) + "\n" if entries else "")
        return self.fill(entries)


def notebook_for(viewer: Viewer, book: Book, folder: Path) -> Notebook:
    """Return the memory file of a person in a private chat, or of a group.

    Notes of a group belong to the group; facts about a person there are stored for that person and that group.
    """
    if viewer.audience and book == "memory":
        return Notebook(group_folder(viewer.audience, folder), book)
    return Notebook(folder_of(viewer, folder), book)


def snapshot(folder: Path, viewer: Viewer = _OWNER) -> str:
    """Return both files for a system prompt; empty if both are."""
    titles = _TITLES_IN_GROUPS if viewer.audience else _TITLES
    books = ((book, notebook_for(viewer, book, folder).entries()) for book in FILES)
    return "\n\n".join(f"## {titles[book]}\n" + _SEPARATOR.join(entries) for book, entries in books if entries)


def _entries(text: str) -> tuple[str, ...]:
    lines = "\n".join("§" if line.strip() == "§" else line for line in text.splitlines())
    return tuple(entry.strip() for entry in f"\n{lines}\n".split(_SEPARATOR) if entry.strip())


_BOOKS = FileCache(_entries)


def _checked(text: str) -> str:
    entry = " ".join(text.split())
    if entry in {"", "§"}:
        raise ToolFailed("nothing to save: give `text`")
    if wrong := what_is_wrong(entry):
        raise ToolFailed(f"not saved: {wrong}")
    return entry


def _the_one(entries: tuple[str, ...], part: str) -> str:
    wanted = part.strip()
    found = [entry for entry in entries if wanted and wanted in entry]
    if len(found) == 1 or (wanted in found):
        return wanted if wanted in found else found[0]
    problem = "no entry contains" if not found else f"{len(found)} entries contain"
    raise ToolFailed(f"{problem} {wanted!r}; `old` must match exactly one of these entries:\n{_listed(entries)}")


def _listed(entries: tuple[str, ...]) -> str:
    return "\n".join(f"- {entry}" for entry in entries) or "(nothing)"


def entries_size(entries: tuple[str, ...]) -> int:
    """Return the number of characters that entries take in a file."""
    return len(_SEPARATOR.join(entries))
