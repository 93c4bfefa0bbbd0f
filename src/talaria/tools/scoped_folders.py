"""Separate folders for people and groups."""

from pathlib import Path
from urllib.parse import unquote

from talaria.contracts.stores.sessions import Viewer

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def folder_of(viewer: Viewer, folder: Path) -> Path:
    """Return the folder of a person, or of a person in a group; the agent's owner has the folder itself.

    Different people and groups never share one, even on a case-insensitive disk.
    """
    if viewer.audience:
        group = group_folder(viewer.audience, folder)
        if viewer.owner == viewer.audience:
            return group
        return group / "people" / _plain(viewer.owner) if viewer.owner else group / "owner"
    return folder / "people" / _plain(viewer.owner) if viewer.owner else folder


def group_folder(audience: str, folder: Path) -> Path:
    """Return the folder of a group."""
    return folder / "groups" / _plain(audience)


def list_people(folder: Path) -> list[str]:
    """Return the people who have a folder of their own."""
    try:
        return sorted(unquote(one.name) for one in (folder / "people").iterdir() if one.is_dir())
    except OSError:
        return []


def _plain(name: str) -> str:
    return "".join(chr(one) if chr(one) in _PLAIN else f"%{one:02x}" for one in name.encode())
