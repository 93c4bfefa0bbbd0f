"""Access tokens of Microsoft Entra and Google: requested with an account's credentials, renewed before they expire."""

import asyncio
import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import BadKey, ProviderUnreachable
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts

ENTRA_AUTHORITY = "https://login.microsoftonline.com"
ENTRA_MODEL_SCOPE = "https://cognitiveservices.azure.com/.default"
GOOGLE_CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GOOGLE_TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address, not a secret
_RENEW_BEFORE = timedelta(minutes=2)
_ASSERTION_LIFE = timedelta(hours=1)
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LARGEST_ANSWER = 100_000


class GrantedToken(Struct, frozen=True):
    """The answer of an authority; ``expires_in`` is in seconds."""

    access_token: str
    expires_in: int = 3600


class TokenRequest(Protocol):
    """Asks an authority for a token."""

    @property
    def content_type(self) -> str:
        """Return the type of the body."""

    def url(self) -> str:
        """Return the address of the authority."""

    def encode(self, now: datetime) -> bytes:
        """Return the body of the request."""

    def decode(self, data: bytes) -> GrantedToken:
        """Return the token of an answer; raises `ValueError` if it has none."""


class _OAuthRequest(ABC):
    """A `TokenRequest` of OAuth: a form, answered in JSON."""

    content_type = "application/x-www-form-urlencoded"

    @abstractmethod
    def form(self, now: datetime) -> Mapping[str, str]:
        """Return the fields of the request."""

    def encode(self, now: datetime) -> bytes:
        """Return the body of the request."""
        return urlencode(self.form(now)).encode()

    def decode(self, data: bytes) -> GrantedToken:
        """Return the token of an answer; raises `ValueError` if it has none."""
        return msgspec.json.decode(data, type=GrantedToken)


class EntraTokenRequest(_OAuthRequest):
    """Microsoft Entra's client credentials: an application signs in with its own secret."""

    def __init__(
        self,
        tenant: str,
        client_id: str,
        client_secret: str,
        authority: str = ENTRA_AUTHORITY,
        scope: str = ENTRA_MODEL_SCOPE,
    ) -> None:
        self._url = f"{authority.rstrip('/')}/{tenant}/oauth2/v2.0/token"
        self._client_id = client_id
        self._client_secret = client_secret
        self._scope = scope

    def url(self) -> str:
        """Return the address of the authority."""
        return self._url

    def form(self, now: datetime) -> Mapping[str, str]:
        """Return the fields of the request."""
        return {
            "grant_type": "client_credentials",
            "client_id": self._client_id,
            "client_secret": self._client_secret,
            "scope": self._scope,
        }


class GoogleTokenRequest(_OAuthRequest):
    """Google's credentials of a file: a service account's signed claim, or a person's refresh token."""

    def __init__(self, file: Path, scope: str = GOOGLE_CLOUD_SCOPE) -> None:
        self._file = file
        self._scope = scope

    def url(self) -> str:
        """Return the address of the authority."""
        return self._read().token_uri

    def form(self, now: datetime) -> Mapping[str, str]:
        """Return the fields of the request."""
        found = self._read()
        if found.type == "service_account":
            return {"grant_type": _JWT_GRANT, "assertion": _sign_claim(found, self._scope, now)}
        return {
            "grant_type": "refresh_token",
            "client_id": found.client_id,
            "client_secret": found.client_secret,
            "refresh_token": found.refresh_token,
        }

    def _read(self) -> "_GoogleCredentials":
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_GoogleCredentials)
        except OSError as error:
            raise BadKey(f"the credentials file {self._file} can't be read: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadKey(f"{self._file} isn't a credentials file of Google: {error}") from error


class _GoogleCredentials(Struct, frozen=True):
    type: str
    token_uri: str = GOOGLE_TOKEN_URL
    client_email: str = ""
    private_key: str = ""
    private_key_id: str = ""
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""


def _sign_claim(credentials: _GoogleCredentials, scope: str, now: datetime) -> str:
    """Return a claim of a service account, signed with its private key (RFC 7523)."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 (loaded for a service account)
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 (loaded for a service account)
        from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415 (loaded for a service account)
    except ImportError as error:
        from talaria.core.installation import install_command  # noqa: PLC0415 (loaded when a library is missing)

        raise BadKey(f"a service account needs the package cryptography: `{install_command('google')}`") from error
    header = {"alg": "RS256", "typ": "JWT", "kid": credentials.private_key_id}
    claim = {
        "iss": credentials.client_email,
        "scope": scope,
        "aud": credentials.token_uri,
        "iat": int(now.timestamp()),
        "exp": int((now + _ASSERTION_LIFE).timestamp()),
    }
    text = b".".join(_encode_base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claim))
    try:
        # Checking that the numbers of the key are prime would take 40 ms each time; it is the owner's own key.
        key = serialization.load_pem_private_key(
            credentials.private_key.encode(), password=None, unsafe_skip_rsa_key_validation=True
        )
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadKey("the private key of the service account can't be read") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise BadKey("the private key of the service account isn't an RSA key")
    return (text + b"." + _encode_base64url(key.sign(text, padding.PKCS1v15(), hashes.SHA256()))).decode()


def _encode_base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class BearerToken:
    """A token of an authority, requested when it is first needed and again shortly before it expires."""

    def __init__(
        self, request: TokenRequest, http: HttpPool, clock: Clock | None = None, timeouts: Timeouts | None = None
    ) -> None:
        self._request = request
        self._http = http
        self._timeouts = timeouts or Timeouts()
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._token = ""
        self._expires_at: datetime | None = None

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers for one request."""
        async with self._lock:  # one request for all calls that wait for it
            if self._expires_at is None or self._clock.now() >= self._expires_at - _RENEW_BEFORE:
                await self._renew()
        return {"Authorization": f"Bearer {self._token}"}

    async def renew(self, headers: Mapping[str, str]) -> bool:
        """Forget a rejected token, unless that has happened since; return true."""
        async with self._lock:
            if headers.get("Authorization") == f"Bearer {self._token}":
                self._expires_at = None
        return True

    async def _renew(self) -> None:
        now = self._clock.now()
        body, url = self._request.encode(now), self._request.url()
        headers = {"Content-Type": self._request.content_type, "Accept": "application/json"}
        async with self._http.post(url, body, headers, self._timeouts) as answer:
            data = await answer.body(_LARGEST_ANSWER)
        if answer.status >= 500 or answer.status == 429:
            raise ProviderUnreachable(f"{urlsplit(url).hostname} answered {answer.status}", cause="the sign-in failed")
        try:
            granted = self._request.decode(data)
        except ValueError as error:
            raise BadKey(
                f"{urlsplit(url).hostname} gave no token: {_read_reason(data)}", status=answer.status
            ) from error
        self._token = granted.access_token
        self._expires_at = now + timedelta(seconds=granted.expires_in)


def _read_reason(data: bytes) -> str:
    """Return the reason that an authority gives, without anything that looks like a secret."""
    try:
        found = json.loads(data)
    except ValueError:
        return "its answer isn't JSON"
    reason = (
        str(found.get("error_description") or found.get("error") or found.get("msg") or "no reason given")
        if found
        else "no reason given"
    )
    return re.sub(r"\s+", " ", reason)[:200]
