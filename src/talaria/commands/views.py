"""Values that commands show: the running program, its settings and its skills."""

from pathlib import Path

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
    """Skill of the agent, with its description."""

    name: str
    about: str
