"""The memory contract: entries with time, source and owner, and the store that holds them."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.stores.sessions import Viewer

MemoryKind = Literal["memory", "user"]
MEMORY_KINDS: tuple[MemoryKind, ...] = ("memory", "user")


class MemorySource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Origin of an entry: a session and its surface, or a person on a ``surface`` without a session."""

    surface: str = ""
    session: str = ""


class MemoryEntry(Struct, frozen=True, kw_only=True):
    """An entry: a paragraph of ``text``, whose it is, when it was written and by what.

    ``memory`` entries are notes of the agent, ``user`` entries are about the person. ``owner`` and ``audience`` are
    those of the `Viewer` who may read it. ``at`` is ``None`` if it isn't known.
    """

    kind: MemoryKind
    text: str
    owner: str = ""
    audience: str = ""
    at: datetime | None = None
    source: MemorySource = MemorySource()

    @property
    def id(self) -> str:
        """Return the name of the entry: the same text of one kind has the same one everywhere."""
        return hashlib.sha256(f"{self.kind}:{self.text}".encode()).hexdigest()[:8]


class MemoryChange(Struct, frozen=True, kw_only=True):
    """A proposed or finished change of all entries of one kind; ``summary`` has their numbers and sizes."""

    kind: MemoryKind
    before: tuple[MemoryEntry, ...]
    after: tuple[MemoryEntry, ...]
    summary: str
    diff: str


class MemoryProvider(Protocol):
    """A store of memory entries for all people, with blocking methods.

    The viewer decides who may read an entry: a provider must never return one that was written for another owner or
    audience. In a group, notes belong to the audience, and facts about a person to both. All methods raise `ToolFailed`
    if the store can't be read or changed.
    """

    def entries(self, viewer: Viewer) -> Sequence[MemoryEntry]:
        """Return the entries of a viewer, oldest first within a kind."""

    def add(self, viewer: Viewer, kind: MemoryKind, text: str, source: MemorySource) -> None:
        """Append an entry; adding the same text again changes nothing."""

    def replace(self, viewer: Viewer, entry: MemoryEntry, text: str, source: MemorySource) -> None:
        """Replace the text of an entry in its place; raises `ToolFailed` if it is gone."""

    def remove(self, viewer: Viewer, entry: MemoryEntry) -> None:
        """Remove an entry; removing it again changes nothing."""

    @property
    def can_rewrite(self) -> bool:
        """Return whether `rewrite` is possible; consolidation needs it."""

    def rewrite(
        self, viewer: Viewer, kind: MemoryKind, before: Sequence[MemoryEntry], after: Sequence[MemoryEntry]
    ) -> None:
        """Replace all entries of a kind at once; raises `ToolFailed` if their texts aren't those of ``before``.

        Entries of ``after`` have their own source, and their own time or the current one.
        """

    def people(self) -> Sequence[str]:
        """Return the people other than the agent's owner who have entries outside of groups."""


class MemoryAccount(Struct, frozen=True, kw_only=True):
    """Arguments of a provider: the profile's folder for memory, and its own options from the settings.

    A provider is found by its name among the entry points ``talaria.memory``: a function that takes an account and
    returns a `MemoryProvider`.
    """

    folder: Path
    options: Mapping[str, str] = {}


class MemoryItem(Struct, frozen=True, kw_only=True):
    """Memory entry: when and where it was written, and by which session, as far as that is known."""

    id: str
    text: str
    at: datetime | None = None
    surface: str = ""
    session: str = ""


class MemoryBook(Struct, frozen=True, kw_only=True):
    """Memory of one kind: notes of the agent, or facts about the person; ``size`` and ``limit`` count characters."""

    kind: MemoryKind
    entries: tuple[MemoryItem, ...]
    size: int
    limit: int
