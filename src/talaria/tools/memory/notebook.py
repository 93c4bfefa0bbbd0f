"""One bounded file of entries, each a paragraph, with a line "§" between them."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import ToolFailed
from talaria.core.remembered import Remembered
from talaria.tools.memory.suspicion import what_is_wrong
from talaria.tools.own_places import folder_of, group_folder
from talaria.tools.whole_files import sole_writer, write_whole

Book = Literal["memory", "user"]
LIMITS: dict[Book, int] = {"memory": 2_200, "user": 1_375}  # characters
FILES: dict[Book, str] = {"memory": "MEMORY.md", "user": "USER.md"}
_SEPARATOR = "\n§\n"


class Notebook(Struct, frozen=True):
    """One of two files; every change reads and writes it whole, under a lock."""

    folder: Path
    book: Book

    @property
    def limit(self) -> int:
        """How many characters fit."""
        return LIMITS[self.book]

    def entries(self) -> tuple[str, ...]:
        """Return what is written there, oldest first."""
        return _BOOKS.get(f"{self.folder}/{FILES[self.book]}") or ()

    def add(self, text: str) -> str:
        """Write an entry at the end; one that is there already stays as it is."""
        entry = _checked(text)
        with sole_writer(self.folder):
            entries = self.entries()
            if entry in entries:
                return f"That is there already. {self.fill(entries)}"
            return f"Added. {self._keep((*entries, entry), instead_of=entries)}"

    def replace(self, part: str, text: str) -> str:
        """Put an entry in the place of the one that has this part."""
        entry = _checked(text)
        with sole_writer(self.folder):
            entries = self.entries()
            if entry in entries:
                return f"That is there already. {self.fill(entries)}"
            old = _the_one(entries, part)
            new = tuple(entry if one == old else one for one in entries)
            return f"Replaced. {self._keep(new, instead_of=entries)}"

    def remove(self, part: str) -> str:
        """Take out the entry that has this part."""
        with sole_writer(self.folder):
            entries = self.entries()
            old = _the_one(entries, part)
            return f"Removed. {self._keep(tuple(one for one in entries if one != old), instead_of=entries)}"

    def fill(self, entries: tuple[str, ...]) -> str:
        """Say how full the book is with these entries."""
        size = _size(entries)
        return f"{FILES[self.book]}: {len(entries)} entries, {size:,} of {self.limit:,} characters."

    def _keep(self, entries: tuple[str, ...], *, instead_of: tuple[str, ...]) -> str:
        size = _size(entries)
        if size > self.limit and size >= _size(instead_of):
            raise ToolFailed(
                f"{FILES[self.book]} is full: with this it would have {size:,} of {self.limit:,} characters. "
                f"Shorten or remove something first. It has:\n{_listed(instead_of)}"
            )
        write_whole(self.folder / FILES[self.book], _SEPARATOR.join(entries) + "\n" if entries else "")
        return self.fill(entries)


def notebook_for(viewer: Viewer, book: Book, folder: Path) -> Notebook:
    """Return the book of a person in a private place, or that of those who read along.

    What a group notes belongs to all of it; what is known of a person there is kept for that person and that group.
    """
    if viewer.audience and book == "memory":
        return Notebook(group_folder(viewer.audience, folder), book)
    return Notebook(folder_of(viewer, folder), book)


def _entries(text: str) -> tuple[str, ...]:
    lines = "\n".join("§" if line.strip() == "§" else line for line in text.splitlines())
    return tuple(entry.strip() for entry in f"\n{lines}\n".split(_SEPARATOR) if entry.strip())


_BOOKS = Remembered(_entries)


def _checked(text: str) -> str:
    entry = " ".join(text.split())
    if entry in {"", "§"}:
        raise ToolFailed("there is nothing to write: give `text`")
    if wrong := what_is_wrong(entry):
        raise ToolFailed(f"this was not written down: {wrong}")
    return entry


def _the_one(entries: tuple[str, ...], part: str) -> str:
    wanted = part.strip()
    found = [entry for entry in entries if wanted and wanted in entry]
    if len(found) == 1 or (wanted in found):
        return wanted if wanted in found else found[0]
    problem = "no entry has" if not found else f"{len(found)} entries have"
    raise ToolFailed(f"{problem} {wanted!r}; `old` must be a part of exactly one entry of:\n{_listed(entries)}")


def _listed(entries: tuple[str, ...]) -> str:
    return "\n".join(f"- {entry}" for entry in entries) or "(nothing)"


def _size(entries: tuple[str, ...]) -> int:
    return len(_SEPARATOR.join(entries))
