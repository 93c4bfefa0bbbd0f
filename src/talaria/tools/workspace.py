"""Where a conversation works: its folder and the environment of its commands."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.core.session_context import SessionContext, for_child, without_context

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEYS?|TOKENS?|SECRETS?|CREDENTIALS?|AUTH|PAT)(?:$|_(?!SOCK))"
    r"|APIKEY|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)PASS$|(?:TOKEN|SECRET)$",
    re.IGNORECASE,
)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^\s/:@]*:[^\s/@]+@")
_OF_THE_SHELL = {"_", "SHLVL"}


class LocalWorkspace:
    """A folder on this machine.

    Its commands begin with the variables that are ``given``; what one of them exports the next ones have, whatever its
    name. All of them are told of the conversation that they belong to.
    """

    def __init__(self, folder: Path, given: Mapping[str, str]) -> None:
        self.folder = folder.absolute()
        self._given = self._own = given
        self._context: SessionContext | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of the next command."""
        return for_child(self._own, self._context) if self._context else self._own

    @property
    def is_untouched(self) -> bool:
        """Whether its variables are those that it was given: all else is in the snapshot."""
        return self._own == self._given

    def resolve(self, path: str) -> Path:
        """Return the absolute path that a model means; ``~`` and relative paths included."""
        if path == "~" or path.startswith("~/"):
            path = self.environment.get("HOME", str(Path.home())) + path[1:]
        return Path(os.path.normpath(self.folder / Path(path).expanduser()))

    def move_to(self, folder: Path) -> None:
        """Work in another folder from now on."""
        self.folder = folder.absolute()

    def set_environment(self, values: Mapping[str, str]) -> None:
        """Have these variables in every later command, instead of those that there were."""
        self._own = {name: value for name, value in without_context(values).items() if name not in _OF_THE_SHELL}

    def tell(self, context: SessionContext) -> None:
        """Let every later command know of this conversation, and of no other."""
        self._context = context

    def snapshot(self) -> str:
        """Return folder and changes of the environment as text for the store.

        Secrets are left out: they live no longer than the process.
        """
        kept: dict[str, str] = {}
        removed: list[str] = []
        if self._own is not self._given:
            changed = {name: value for name, value in self._own.items() if self._given.get(name) != value}
            kept = {name: value for name, value in without_secrets(changed).items() if _is_text(name + value)}
            removed = [name for name in self._given if name not in self._own]
        return msgspec.json.encode(_Snapshot(str(self.folder), kept, removed)).decode()

    def restore(self, text: str) -> None:
        """Take up what `snapshot` returned, on top of what is given today."""
        kept = msgspec.json.decode(text, type=_Snapshot)
        self.folder = Path(kept.folder)
        if kept.changed or kept.removed:
            own = {**self._given, **kept.changed}
            self._own = {name: value for name, value in own.items() if name not in kept.removed}


def for_commands(environment: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """Return what commands may begin with of the person's environment: no secrets, nothing of another conversation."""
    return without_context(without_secrets(environment, secrets))


def without_secrets(environment: Mapping[str, str], names: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that neither are named here nor look like a key, a token or a password."""
    return {name: value for name, value in environment.items() if name not in names and not _is_secret(name, value)}


class _Snapshot(Struct, frozen=True):
    folder: str
    changed: dict[str, str]
    removed: list[str]


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _PASSWORD_IN_ADDRESS.search(value))


def _is_text(value: str) -> bool:
    """Tell whether a store takes it: the system also allows bytes that are no text."""
    return value.encode("utf-8", "replace").decode() == value
