"""Where a conversation works: its folder and the environment of its commands."""

import os
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.core.session_context import without_context

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?)?(?:KEYS?|TOKENS?|SECRETS?|CREDENTIALS?|AUTH|PAT)(?:$|_(?!SOCK))"
    r"|APIKEY|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)PASS$|(?:TOKEN|SECRET)$",
    re.IGNORECASE,
)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^\s/:@]*:[^\s/@]+@")
_OF_THE_TURN = ("TALARIA_SESSION_", "TALARIA_CRON_")
_OF_THE_SHELL = {"_", "SHLVL"}


class LocalWorkspace:
    """A folder on this machine.

    What the person's environment holds of secrets, or of another conversation, stays out; what a command exports later
    is kept, whatever its name.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, secrets: Collection[str] = ()) -> None:
        self.folder = folder.absolute()
        self._given = without_context(without_secrets(environment, secrets))
        self.environment: Mapping[str, str] = dict(self._given)

    @property
    def is_untouched(self) -> bool:
        """Whether its variables are those that it was given: all else is in the snapshot."""
        return self.environment == self._given

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
        self.environment = {name: value for name, value in values.items() if name not in _OF_THE_SHELL}

    def tell(self, variables: Mapping[str, str]) -> None:
        """Have these variables of the conversation in every later command, and none of any other."""
        self._given = {**without_context(self._given), **variables}
        self.environment = {**without_context(self.environment), **variables}

    def snapshot(self) -> str:
        """Return folder and changes of the environment as text for the store.

        What belongs to one turn is left out, and so are secrets: they live no longer than the process.
        """
        changed = {name: value for name, value in self.environment.items() if self._given.get(name) != value}
        kept = {name: value for name, value in without_secrets(changed).items() if _is_storable(name, value)}
        removed = [name for name in self._given if name not in self.environment and not name.startswith(_OF_THE_TURN)]
        return msgspec.json.encode(_Snapshot(str(self.folder), kept, removed)).decode()

    def restore(self, text: str) -> None:
        """Take up what `snapshot` returned, on top of the environment of today."""
        kept = msgspec.json.decode(text, type=_Snapshot)
        self.folder = Path(kept.folder)
        environment = {**self.environment, **kept.changed}
        self.environment = {name: value for name, value in environment.items() if name not in kept.removed}


def without_secrets(environment: Mapping[str, str], names: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that neither are named here nor look like a key, a token or a password."""
    return {name: value for name, value in environment.items() if name not in names and not _is_secret(name, value)}


class _Snapshot(Struct, frozen=True):
    folder: str
    changed: dict[str, str]
    removed: list[str]


@lru_cache(1024)  # every conversation asks for the same variables
def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _PASSWORD_IN_ADDRESS.search(value))


def _is_storable(name: str, value: str) -> bool:
    """Return whether this lasts longer than a turn, and is text: the system also allows bytes that are none."""
    return not name.startswith(_OF_THE_TURN) and (name + value).encode("utf-8", "replace").decode() == name + value
