"""Values that commands show: the running program, its settings, skills and memory."""

from pathlib import Path
from typing import Literal

from msgspec import Struct


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


class Skill(Struct, frozen=True):
    """Skill of the agent, with its description; one of the profile, not of a project, ``is_own`` and can be edited."""

    name: str
    about: str
    is_enabled: bool = True
    is_own: bool = False


MemoryKind = Literal["memory", "user"]


class MemoryBook(Struct, frozen=True, kw_only=True):
    """Memory file: notes of the agent, or facts about the person; ``size`` and ``limit`` count characters."""

    kind: MemoryKind
    entries: tuple[str, ...]
    size: int
    limit: int
