"""API keys: who calls, and what their key allows."""

import hmac
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from talaria.api.problems import Problem
from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store
from talaria.core.api_owner import api_owner
from talaria.sessions.api_keys import ENVIRONMENT_KEY, SCOPES, ApiKey, KeyScope, digest_of, list_keys

_SECONDS = 1.0  # for which a key that was revoked by another process still works
_NO_KEY = "A key is needed: `Authorization: Bearer KEY`."
_KEYLESS_SCOPES: frozenset[KeyScope] = frozenset({"chat"})


class Caller(Struct, frozen=True):
    """Who calls: the name of the key, empty for a caller without one, and its scopes."""

    name: str = ""
    scopes: frozenset[KeyScope] = frozenset()

    def may(self, scope: KeyScope) -> bool:
        """Tell whether a scope is allowed: ``admin`` includes all, ``agent`` includes ``chat``."""
        return scope in self.scopes or "admin" in self.scopes or (scope == "chat" and "agent" in self.scopes)

    @property
    def owner(self) -> str:
        """The owner of conversations that this caller starts: empty, the agent's owner, with the scope ``agent``."""
        return "" if self.may("agent") else api_owner(self.name)


class Keyring:
    """All keys that are accepted: those of the store, and ``given``, which has every scope.

    What is allowed without a key is decided here once, and not by how many keys there are: nothing, unless ``keyless``.
    Then a request without a valid key may chat as a guest, and no more.
    """

    def __init__(self, store: Store, given: str = "", *, keyless: bool = False, clock: Clock | None = None) -> None:
        self._store = store
        self._given = digest_of(given) if given else ""
        self._keyless = keyless
        self._clock = clock or SystemClock()
        self._keys: Sequence[ApiKey] = ()
        self._read_at: datetime | None = None

    async def caller(self, authorization: str, scope: KeyScope) -> Caller:
        """Return who sent this header; raises a `Problem` with 401 for an unknown key, 403 for a missing scope."""
        kind, _, token = authorization.partition(" ")
        caller = self._find(token.strip(), await self._known()) if kind.lower() == "bearer" else None
        if caller is None and self._keyless:
            caller = Caller(scopes=_KEYLESS_SCOPES)
        if caller is None:
            raise UnknownKey("That key is not known here." if authorization else _NO_KEY)
        if not caller.may(scope):
            has = ", ".join(sorted(caller.scopes)) if caller.name else "no key"
            raise Problem(
                f"This needs a key with the scope `{scope}`; you have {has}.",
                403,
                kind="permission_error",
                code="insufficient_scope",
            )
        return caller

    def _find(self, token: str, keys: Sequence[ApiKey]) -> Caller | None:
        """Compare with every key, in a time that does not depend on which one it is."""
        digest, found = digest_of(token), None
        for key in keys:
            if hmac.compare_digest(key.digest, digest):
                found = Caller(key.name, frozenset(key.scopes))
        if hmac.compare_digest(self._given, digest):
            found = Caller(ENVIRONMENT_KEY, frozenset(SCOPES))
        return found

    async def _known(self) -> Sequence[ApiKey]:
        now = self._clock.now()
        if self._read_at is None or not 0 <= (now - self._read_at).total_seconds() < _SECONDS:
            self._keys = await self._store.read(list_keys)
            self._read_at = now
        return self._keys


class UnknownKey(Problem):
    """The request has no key, or one that is not known."""

    def __init__(self, message: str) -> None:
        headers = {"www-authenticate": "Bearer"}
        super().__init__(message, 401, kind="authentication_error", code="invalid_api_key", headers=headers)
