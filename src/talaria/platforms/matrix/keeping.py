"""What has to outlive the process: how far we have read, and who we are to the homeserver."""

import os
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct


class Position(Protocol):
    """Something small to remember, such as how far everything has been taken; `app` keeps it in the store."""

    async def load(self) -> str:
        """Return what was saved last; empty at the very first time."""

    async def save(self, token: str) -> None:
        """Keep this durably in place of what was there."""


class MemoryPosition:
    """Implements `Position` for as long as the process lives."""

    def __init__(self) -> None:
        self._token = ""

    async def load(self) -> str:
        """Return what was saved last; empty at the very first time."""
        return self._token

    async def save(self, token: str) -> None:
        """Keep this in place of what was there."""
        self._token = token


class Login(Struct, frozen=True):
    """A login that stays good until somebody ends it; ``device_id`` is what the homeserver calls this installation."""

    homeserver: str
    user_id: str
    device_id: str
    token: str


class LoginFile:
    """The login of an account, in a file that only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "login.json"

    def load(self, homeserver: str, user: str) -> Login | None:
        """Return the login of this account, ``@user:server`` or ``user``; ``None`` where there is none."""
        try:
            login = msgspec.json.decode(self._path.read_bytes(), type=Login)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        known = {login.user_id, login.user_id[1:].partition(":")[0]}
        return login if login.homeserver == homeserver and user in known else None

    def save(self, login: Login) -> None:
        """Keep a login."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(login))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._path)
