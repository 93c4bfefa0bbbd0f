"""Stored sign-ins of a profile: one private file each, replaced atomically and locked across processes."""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from talaria.core.errors import Busy, Refused
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder, read_file, write_file
from talaria.settings.errors import ProfileUnusable

LOCK_SECONDS = 45.0  # longer than a refresh may take
_RETRY_SECONDS = 0.05
_RENEW_BEFORE = timedelta(minutes=2)
_SHORT_LIFE_PART = 10  # of a token that lives for minutes, the last tenth


def choose_renewal(now: datetime, expires_at: datetime) -> datetime:
    """Return when a token that expires then should be renewed."""
    return expires_at - min(_RENEW_BEFORE, (expires_at - now) / _SHORT_LIFE_PART)


def login_name(server: str) -> str:
    """Return the name under which the sign-in to an MCP server is stored."""
    return f"mcp-{quote(server, safe='')}"


class StoredLogin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Tokens of one sign-in, and what is needed to renew them.

    From ``renew_at``, a little before ``expires_at``, the access token is renewed. ``headers`` and ``base_url`` are
    what the provider's requests need for this account. ``problem`` is set once the server has rejected the refresh
    token. ``title``, ``command``, ``token_parameters`` and ``secret_in_header`` are those of a client that isn't built
    in.
    """

    name: str
    access_token: str
    refresh_token: str
    expires_at: datetime
    renew_at: datetime
    client_id: str
    client_secret: str = ""
    token_url: str = ""
    revoke_url: str = ""
    exchange_url: str = ""
    account: str = ""
    plan: str = ""
    headers: dict[str, str] = {}
    base_url: str = ""
    problem: str = ""
    title: str = ""
    command: str = ""
    token_parameters: dict[str, str] = {}
    secret_in_header: bool = False

    def is_fresh(self, now: datetime) -> bool:
        """Return whether the access token needn't be renewed before a call."""
        return now < self.renew_at

    def secret_values(self) -> tuple[str, ...]:
        """Return everything in it that must never be shown."""
        return tuple(filter(None, (self.access_token, self.refresh_token, self.client_secret)))


class LoginStore:
    """The sign-ins in the folder ``logins`` of a profile."""

    def __init__(self, profile_folder: Path) -> None:
        self._folder = profile_folder / "logins"

    def path(self, name: str) -> Path:
        """Return the file of a sign-in, which may not exist."""
        return self._folder / f"{name}.json"

    def get(self, name: str) -> StoredLogin | None:
        """Return a sign-in; ``None`` if there is none. Raises `Refused` if its file is damaged."""
        content = read_file(self.path(name))
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=StoredLogin)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Refused(f"{self.path(name)} is damaged. Sign in again with `talaria login {name}`.") from error

    def exists(self, name: str) -> bool:
        """Return whether there is a sign-in."""
        return self.path(name).exists()

    def put(self, login: StoredLogin) -> None:
        """Store a sign-in, readable by the owner only."""
        make_folder(self._folder)
        write_file(self.path(login.name), msgspec.json.format(msgspec.json.encode(login)).decode())

    def remove(self, name: str) -> bool:
        """Remove a sign-in, and return whether there was one."""
        try:
            self.path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ProfileUnusable(self.path(name), "can't be removed", error) from error
        return True

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None, None]:
        """Lock a sign-in against all processes of this machine; raises `Busy` if another holds it for too long.

        The lock ends with its process, so a crash never blocks others.
        """
        make_folder(self._folder)
        path = self._folder / f"{name}.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY_FILE)
        except OSError as error:
            raise ProfileUnusable(path, "can't be locked", error) from error
        try:
            await _acquire(handle, name)
            yield
        finally:
            os.close(handle)


async def _acquire(handle: int, name: str) -> None:
    """Wait for the lock without blocking the loop, so that the caller can be cancelled."""
    try:
        async with asyncio.timeout(LOCK_SECONDS):
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    return
    except TimeoutError as error:
        raise Busy(f"Another process has been renewing the sign-in `{name}` for {LOCK_SECONDS:.0f} s.") from error
