"""OAuth access tokens of a mailbox, renewed with its refresh token."""

import asyncio
import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from talaria.core.errors import BadCredentials, ProviderError, Unreachable
from talaria.http_client.client import HttpPool
from talaria.http_client.timeouts import Timeouts
from talaria.platforms.email.settings import EmailSettings

_FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_EARLY = timedelta(minutes=2)
_DEFAULT_LIFE = timedelta(hours=1)
_MAX_ANSWER = 64 * 1024
_OK = 200
_OWNER_ONLY = 0o600


class _Granted(Struct):
    access_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0
    error: str = ""


class _StoredToken(Struct, frozen=True):
    """The newest refresh token, and a digest of the configured one that it follows from."""

    follows: str
    refresh_token: str


class AccessTokens:
    """Tokens for one mailbox; ``folder`` stores the refresh tokens that the provider sends as replacements."""

    def __init__(self, settings: EmailSettings, folder: Path) -> None:
        self._settings = settings
        self._path = folder / "refresh_token.json"
        self._pool = HttpPool()
        self._lock = asyncio.Lock()
        self._token = ""
        self._expires_at = datetime.min.replace(tzinfo=UTC)

    async def get(self) -> str:
        """Return a valid token; raises `BadCredentials` if the provider wants a new sign-in."""
        async with self._lock:
            if datetime.now(UTC) + _EARLY >= self._expires_at:
                await self._renew()
            return self._token

    def expire(self) -> None:
        """Renew the token before its next use, because a server refused it."""
        self._expires_at = datetime.min.replace(tzinfo=UTC)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def _renew(self) -> None:
        settings = self._settings
        form = {
            "grant_type": "refresh_token",
            "refresh_token": await asyncio.to_thread(self._load),
            "client_id": settings.client_id,
            **({"client_secret": settings.client_secret} if settings.client_secret else {}),
        }
        timeouts = Timeouts(settings.patience, settings.patience, settings.patience)
        try:
            async with self._pool.request(
                "POST", settings.token_url, urlencode(form).encode(), _FORM, timeouts
            ) as answer:
                status, body = answer.status, await answer.body(_MAX_ANSWER)
        except ProviderError as error:  # of the HTTP client, which model providers share
            raise Unreachable(f"the sign-in server can't be reached: {error}") from error
        granted = _decode(body)
        if status != _OK or not granted.access_token:
            if status >= 500 or status == 429:
                raise Unreachable(f"the sign-in server answered HTTP {status}")
            raise BadCredentials(f"the provider doesn't accept the refresh token ({granted.error[:80] or status})")
        if granted.refresh_token:
            await asyncio.to_thread(self._save, granted.refresh_token)
        self._token = granted.access_token
        life = timedelta(seconds=granted.expires_in) if granted.expires_in else _DEFAULT_LIFE
        self._expires_at = datetime.now(UTC) + life

    def _load(self) -> str:
        """Return the newest refresh token; a newly configured one replaces a stored one."""
        try:
            stored = msgspec.json.decode(self._path.read_bytes(), type=_StoredToken)
        except (OSError, msgspec.MsgspecError):
            return self._settings.refresh_token
        return stored.refresh_token if stored.follows == self._digest() else self._settings.refresh_token

    def _save(self, token: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(_StoredToken(self._digest(), token)))
        draft.replace(self._path)

    def _digest(self) -> str:
        return hashlib.sha256(self._settings.refresh_token.encode()).hexdigest()


def _decode(body: bytes) -> _Granted:
    try:
        return msgspec.json.decode(body, type=_Granted, strict=False)
    except msgspec.MsgspecError:
        return _Granted()
