"""Verification of bearer tokens (JWT) by which a network proves that it calls: keys, issuer, audience, expiry."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import jwt
import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import Unreachable
from talaria.platforms.http_api import HttpApi, describe_error
from talaria.platforms.signatures import REPLAY_WINDOW, BadSignature

_ALGORITHM = "RS256"
_KEY_LIFE = timedelta(hours=24)
_REFETCH_PAUSE = timedelta(seconds=30)  # unknown key ids, which anybody can send, cause no more requests than this
_PREFIX = "Bearer "


class VerifiedToken(Struct, frozen=True):
    """The claims of a token, and the published key that signed it."""

    claims: Mapping[str, Any]
    key: Mapping[str, Any]


class _Metadata(Struct):
    jwks_uri: str


class _KeySet(Struct):
    keys: tuple[dict[str, Any], ...]


class SigningKeys:
    """The public keys of an issuer, cached for a day and fetched again when a token names an unknown one.

    ``url`` is that of the key set, or with ``is_metadata`` that of an OpenID document which names it. The creator
    closes them.
    """

    def __init__(
        self,
        url: str,
        patience: timedelta,
        *,
        is_metadata: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._api = HttpApi("the issuer of tokens", lambda answer: Unreachable(describe_error(answer)))
        self._url = url
        self._patience = patience
        self._is_metadata = is_metadata
        self._clock = clock or SystemClock()
        self._keys: dict[str, Mapping[str, Any]] = {}
        self._fetched_at: datetime | None = None
        self._lock = asyncio.Lock()

    async def find(self, key_id: str) -> Mapping[str, Any]:
        """Return a key; raises `BadSignature` if the issuer has none with this id, `Unreachable` if it can't tell."""
        async with self._lock:  # one request for all posts that wait for it
            age = None if self._fetched_at is None else self._clock.now() - self._fetched_at
            if age is None or age > _KEY_LIFE or (key_id not in self._keys and age > _REFETCH_PAUSE):
                await self._fetch()
        if key_id not in self._keys:
            raise BadSignature("its key is unknown")
        return self._keys[key_id]

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def _fetch(self) -> None:
        try:
            url = self._url
            if self._is_metadata:
                url = msgspec.json.decode(await self._get(url), type=_Metadata).jwks_uri
            found = msgspec.json.decode(await self._get(url), type=_KeySet)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{self._url} has no signing keys: {error}") from error
        self._keys = {key["kid"]: key for key in found.keys if isinstance(key.get("kid"), str)}
        self._fetched_at = self._clock.now()

    async def _get(self, url: str) -> bytes:
        return (await self._api.call("GET", url, {}, self._patience)).body


async def verify_token(authorization: str, keys: SigningKeys, *, issuers: list[str], audience: str) -> VerifiedToken:
    """Return the token of a header ``Authorization``; raises `BadSignature`, or `Unreachable` without the keys."""
    if not authorization.startswith(_PREFIX):
        raise BadSignature("it is missing")
    token = authorization.removeprefix(_PREFIX).strip()
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") != _ALGORITHM:
            raise BadSignature(f"it isn't made with {_ALGORITHM}")
        key = await keys.find(str(header.get("kid", "")))
        claims = jwt.decode(
            token,
            jwt.PyJWK(dict(key), _ALGORITHM),
            algorithms=[_ALGORITHM],
            audience=audience,
            issuer=issuers,
            leeway=REPLAY_WINDOW,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWTError as error:
        raise BadSignature(f"the token is invalid: {error}") from error
    return VerifiedToken(claims, key)
