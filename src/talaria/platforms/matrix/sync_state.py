"""State that outlives the process: read position and login."""

import os
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct


class ValueStore(Protocol):
    """A small stored value, for example the read position."""

    async def load(self) -> str:
        """Return the last value; empty the first time."""

    async def save(self, token: str) -> None:
        """Replace the value durably."""


class MemoryValueStore:
    """A value in memory."""

    def __init__(self) -> None:
        self._value = ""

    async def load(self) -> str:
        """Return the last value; empty the first time."""
        return self._value

    async def save(self, token: str) -> None:
        """Replace the value."""
        self._value = token


class Login(Struct, frozen=True):
    """A login, valid until it is revoked; ``device_id`` is the homeserver's name of this installation."""

    homeserver: str
    user_id: str
    device_id: str
    token: str


class LoginFile:
    """The login of an account, in a file that only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "login.json"

    def load(self, homeserver: str, user: str) -> Login | None:
        """Return the login of this account, ``@user:server`` or ``user``; ``None`` if there is none."""
        try:
            login = msgspec.json.decode(self._path.read_bytes(), type=Login)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        user_names = {login.user_id, login.user_id[1:].partition(":")[0]}
        return login if login.homeserver == homeserver and user in user_names else None

    def save(self, login: Login) -> None:
        """Save a login."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(login))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._path)
