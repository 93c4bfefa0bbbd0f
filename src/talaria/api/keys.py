"""Who asks, told by a key."""

import hmac
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from talaria.api.problems import Problem
from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store
from talaria.sessions.api_keys import SCOPES, ApiKey, KeyScope, digest_of, list_keys

ENVIRONMENT_KEY = "TALARIA_API_KEY"
_SECONDS = 1.0  # for which a key that was revoked elsewhere may still be good


class Caller(Struct, frozen=True):
    """Who asks: the name of the key, empty where none is needed, and what it is good for."""

    name: str = ""
    scopes: frozenset[KeyScope] = frozenset(SCOPES)

    def may(self, scope: KeyScope) -> bool:
        """Tell whether this is allowed; ``admin`` is good for everything."""
        return scope in self.scopes or "admin" in self.scopes


class Keyring:
    """Knows who may ask; ``given`` is a key from the environment, good for everything."""

    def __init__(self, store: Store, given: str = "", clock: Clock | None = None) -> None:
        self._store = store
        self._given = digest_of(given) if given else ""
        self._clock = clock or SystemClock()
        self._keys: Sequence[ApiKey] = ()
        self._read_at: datetime | None = None

    async def is_empty(self) -> bool:
        """Tell whether there is no key at all, so that none can be asked for."""
        return not self._given and not await self._known()

    async def caller(self, authorization: str, scope: KeyScope) -> Caller:
        """Return who asks with this header; raises a `Problem` with 401 for a stranger, 403 for the wrong scope."""
        keys = await self._known()
        if not keys and not self._given:
            return Caller()
        kind, _, token = authorization.partition(" ")
        caller = self._recognised(token.strip(), keys) if kind.lower() == "bearer" else None
        if caller is None:
            what = "That key is not known here." if authorization else "A key is needed: `Authorization: Bearer KEY`."
            headers = {"www-authenticate": "Bearer"}
            raise Problem(what, 401, kind="authentication_error", code="invalid_api_key", headers=headers)
        if not caller.may(scope):
            has = ", ".join(sorted(caller.scopes))
            raise Problem(
                f"This needs a key with the scope `{scope}`; yours has {has}.",
                403,
                kind="permission_error",
                code="insufficient_scope",
            )
        return caller

    def _recognised(self, token: str, keys: Sequence[ApiKey]) -> Caller | None:
        """Compare with every key, whichever it is: how long that takes tells nothing."""
        digest, found = digest_of(token), None
        for key in keys:
            if hmac.compare_digest(key.digest, digest):
                found = Caller(key.name, frozenset(key.scopes))
        if hmac.compare_digest(self._given, digest):
            found = Caller(ENVIRONMENT_KEY)
        return found

    async def _known(self) -> Sequence[ApiKey]:
        now = self._clock.now()
        if self._read_at is None or not 0 <= (now - self._read_at).total_seconds() < _SECONDS:
            self._keys = await self._store.read(list_keys)
            self._read_at = now
        return self._keys
