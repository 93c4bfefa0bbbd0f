"""The workspace of a session: its folder and the environment of its commands; folders of guests."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from talaria.contracts.stores.sessions import Viewer
from talaria.core.session_context import SessionContext, child_environment, without_context

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def find_person_folder(viewer: Viewer, folder: Path) -> Path:
    """Return the folder of a person, or of a person in a group; the agent's owner has the folder itself.

    Different people and groups never share one, even on a case-insensitive disk.
    """
    if viewer.audience:
        group = find_group_folder(viewer.audience, folder)
        if viewer.owner == viewer.audience:
            return group
        return group / "people" / _escape_name(viewer.owner) if viewer.owner else group / "owner"
    return folder / "people" / _escape_name(viewer.owner) if viewer.owner else folder


def find_group_folder(audience: str, folder: Path) -> Path:
    """Return the folder of a group."""
    return folder / "groups" / _escape_name(audience)


def list_people(folder: Path) -> list[str]:
    """Return the people who have a folder of their own."""
    try:
        return sorted(unquote(one.name) for one in (folder / "people").iterdir() if one.is_dir())
    except OSError:
        return []


def _escape_name(name: str) -> str:
    return "".join(chr(one) if chr(one) in _PLAIN else f"%{one:02x}" for one in name.encode())


_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEYS?|TOKENS?|SECRETS?|CREDENTIALS?|AUTH|PAT)(?:$|_(?!SOCK))"
    r"|APIKEY|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)PASS$|(?:TOKEN|SECRET)$",
    re.IGNORECASE,
)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^\s/:@]*:[^\s/@]+@")
_OF_THE_SHELL = {"_", "SHLVL"}


class LocalWorkspace:
    """A workspace on this machine.

    Its commands start with the variables that are ``given``; exports of a command carry over to the next ones. All of
    them get the session context. ``began_in`` is the folder in which the session started: it stays the same when the
    workspace moves, and when it is restored elsewhere. ``sandbox_folder`` is the folder of commands in a sandbox with
    its own files; empty if it is the same one.
    """

    def __init__(self, folder: Path, given: Mapping[str, str]) -> None:
        self.folder = self.began_in = folder.absolute()
        self.sandbox_folder = ""
        self._given = self._own = given
        self._context: SessionContext | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables for the next command."""
        return child_environment(self._own, self._context) if self._context else self._own

    @property
    def is_untouched(self) -> bool:
        """Return whether its variables are unchanged: everything else is in the snapshot."""
        return self._own == self._given

    def resolve(self, path: str) -> Path:
        """Return the absolute path that a model means; ``~`` and relative paths included."""
        if path == "~" or path.startswith("~/"):
            path = self.environment.get("HOME", str(Path.home())) + path[1:]
        return Path(os.path.normpath(self.folder / Path(path).expanduser()))

    def move_to(self, folder: Path) -> None:
        """Change the working folder, also of commands in a sandbox."""
        self.folder = folder.absolute()
        self.sandbox_folder = ""

    def move_inside(self, folder: str) -> None:
        """Change the folder of commands in a sandbox with its own files."""
        self.sandbox_folder = folder

    def set_environment(self, values: Mapping[str, str]) -> None:
        """Replace the variables for all later commands."""
        self._own = {name: value for name, value in without_context(values).items() if name not in _OF_THE_SHELL}

    def set_context(self, context: SessionContext) -> None:
        """Set the session context for all later commands."""
        self._context = context

    def snapshot(self) -> str:
        """Return the folder and the changes of the environment as text for the store.

        Secrets are left out: they live no longer than the process.
        """
        saved: dict[str, str] = {}
        removed: list[str] = []
        if self._own is not self._given:
            changed = {name: value for name, value in self._own.items() if self._given.get(name) != value}
            saved = {name: value for name, value in remove_secrets(changed).items() if _is_text(name + value)}
            removed = [name for name in self._given if name not in self._own]
        return msgspec.json.encode(
            _Snapshot(str(self.folder), saved, removed, str(self.began_in), self.sandbox_folder)
        ).decode()

    def restore(self, text: str) -> None:
        """Restore the result of `snapshot`, on top of today's given variables."""
        snapshot = msgspec.json.decode(text, type=_Snapshot)
        self.folder = Path(snapshot.folder)
        self.sandbox_folder = snapshot.sandbox_folder
        if snapshot.began_in:
            self.began_in = Path(snapshot.began_in)
        if snapshot.changed or snapshot.removed:
            own = {**self._given, **snapshot.changed}
            self._own = {name: value for name, value in own.items() if name not in snapshot.removed}


def filter_environment(environment: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """Return the part of the user's environment that commands may start with: without secrets or other sessions."""
    return without_context(remove_secrets(environment, secrets))


def remove_secrets(environment: Mapping[str, str], names: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that are neither named here nor look like a key, a token or a password."""
    return {name: value for name, value in environment.items() if name not in names and not _is_secret(name, value)}


class _Snapshot(Struct, frozen=True):
    folder: str
    changed: dict[str, str]
    removed: list[str]
    began_in: str = ""
    sandbox_folder: str = ""


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _PASSWORD_IN_ADDRESS.search(value))


def _is_text(value: str) -> bool:
    """Return whether the store accepts the text: the system also allows invalid bytes."""
    return value.encode("utf-8", "replace").decode() == value
