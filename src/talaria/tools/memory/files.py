"""Memory in files that people can edit: paragraphs separated by a line "§", with times and sources."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.memory import MEMORY_KINDS, MemoryAccount, MemoryEntry, MemoryKind, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import ToolFailed
from talaria.core.file_cache import FileCache
from talaria.tools.atomic_files import sole_writer, write_whole
from talaria.tools.workspace import folder_of, group_folder, list_people

FILES: dict[MemoryKind, str] = {"memory": "MEMORY.md", "user": "USER.md"}
SEPARATOR = "\n§\n"
_ORIGINS = "entries.json"
_BY_HAND = MemorySource(surface="file")


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

    def texts(self, viewer: Viewer, kind: MemoryKind) -> tuple[str, ...]:
        """Return the texts of one kind, without times and sources."""
        return _TEXTS.get(f"{self._place(viewer, kind)}/{FILES[kind]}") or ()

    def add(self, viewer: Viewer, kind: MemoryKind, text: str, source: MemorySource) -> None:
        """Append an entry, unless it exists."""
        place = self._place(viewer, kind)
        with sole_writer(place):
            texts = self.texts(viewer, kind)
            if text not in texts:
                self._write(viewer, kind, (*texts, text), source)

    def replace(self, viewer: Viewer, entry: MemoryEntry, text: str, source: MemorySource) -> None:
        """Replace an entry in its place."""
        with sole_writer(self._place(viewer, entry.kind)):
            texts = self.texts(viewer, entry.kind)
            if entry.text not in texts:
                raise ToolFailed("the entry was changed meanwhile; look again")
            changed = dict.fromkeys(text if one == entry.text else one for one in texts)
            self._write(viewer, entry.kind, tuple(changed), source)

    def remove(self, viewer: Viewer, entry: MemoryEntry) -> None:
        """Remove an entry."""
        with sole_writer(self._place(viewer, entry.kind)):
            texts = self.texts(viewer, entry.kind)
            if entry.text in texts:
                self._write(viewer, entry.kind, tuple(one for one in texts if one != entry.text), _BY_HAND)

    def rewrite(
        self, viewer: Viewer, kind: MemoryKind, before: Sequence[MemoryEntry], after: Sequence[MemoryEntry]
    ) -> None:
        """Replace all entries of a file, if they still are ``before``."""
        with sole_writer(self._place(viewer, kind)):
            if self.texts(viewer, kind) != tuple(one.text for one in before):
                raise ToolFailed("the memory was changed meanwhile")
            self._write(viewer, kind, tuple(one.text for one in after), _BY_HAND, given=after)

    def people(self) -> Sequence[str]:
        """Return the people who have files with entries."""
        return [
            name for name in list_people(self.folder) if any(self.texts(Viewer(name), kind) for kind in MEMORY_KINDS)
        ]

    def _place(self, viewer: Viewer, kind: MemoryKind) -> Path:
        if viewer.audience and kind == "memory":
            return group_folder(viewer.audience, self.folder)
        return folder_of(viewer, self.folder)

    def _read(self, viewer: Viewer, kind: MemoryKind) -> Iterable[MemoryEntry]:
        place, texts = self._place(viewer, kind), self.texts(viewer, kind)
        origins = _read_origins(place) if texts else {}
        for text in texts:
            entry = MemoryEntry(kind=kind, text=text, owner=viewer.owner, audience=viewer.audience)
            origin = origins.get(entry.id)
            at = origin.at if origin else _modified(place / FILES[kind])
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
        place = self._place(viewer, kind)
        known = {entry.id: entry for entry in self._read(viewer, kind)}
        whole = {entry.id: entry for entry in given} | known
        now = datetime.now(UTC)
        origins = {name: one for name, one in _read_origins(place).items() if name not in known}
        for text in texts:
            entry = MemoryEntry(kind=kind, text=text)
            old = whole.get(entry.id)
            at, whence = (old.at or now, old.source) if old else (now, source)
            origins[entry.id] = _Origin(at, whence, viewer.owner, viewer.audience)
        # A crash in between leaves origins of entries that don't exist, which nobody reads.
        write_whole(place / _ORIGINS, msgspec.json.format(msgspec.json.encode(origins), indent=1).decode() + "\n")
        write_whole(place / FILES[kind], SEPARATOR.join(texts) + "\n" if texts else "")


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


def _read_origins(place: Path) -> dict[str, _Origin]:
    return _KNOWN_ORIGINS.get(f"{place}/{_ORIGINS}") or {}


def _modified(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    except OSError:
        return None
