"""Values that commands show: the running program, its settings and memory."""

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from talaria.contracts.memory import MemoryKind


class Identity(Struct, frozen=True, kw_only=True):
    """Version, profile and files of the running program."""

    version: str
    profile: str
    folder: Path
    store: str
    log_file: Path


class Setting(Struct, frozen=True):
    """Setting with its value; secrets in the value are masked."""

    key: str
    value: str
    about: str
    is_default: bool


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
