"""The API's front door: callers are identified by bearer keys, and errors have OpenAI's format."""

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from msgspec import Struct

from talaria.access.api_keys import ENVIRONMENT_KEY, SCOPES, ApiKey, KeyScope, digest_of, list_keys
from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store
from talaria.core.errors import StoreError
from talaria.core.messages import api_owner
from talaria.http.errors import Problem, make_too_many
from talaria.http.openapi import RouteGroup
from talaria.http.routing import Reply, Request, Route, make_json_reply

_CACHE_SECONDS = 1.0  # for which a key revoked by another process still works
_NO_KEY = "An API key is required: `Authorization: Bearer KEY`."
_KEYLESS_SCOPES: frozenset[KeyScope] = frozenset({"chat"})
_MAX_ADDRESSES = 1024  # the maximum number remembered
_FORGET_SECONDS = 600.0
_FREE_FAILURES = 3  # failures answered without delay
_FIRST_DELAY, _MAX_DELAY = 0.1, 5.0
_MAX_DELAYED = 32

log = logging.getLogger(__name__)


class ErrorBody(Struct, frozen=True):
    """An error; ``param`` is the field concerned."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(Struct, frozen=True):
    """An error in OpenAI's format."""

    error: ErrorBody


def wrap_problem(problem: Problem) -> ErrorEnvelope:
    """Return an error in OpenAI's format."""
    return ErrorEnvelope(ErrorBody(str(problem), problem.kind, problem.param, problem.code))


def describe_api(routes: Sequence[Route]) -> RouteGroup:
    """Return the routes of the API with what they have in common."""
    return RouteGroup(
        routes=routes,
        error_type=ErrorEnvelope,
        scheme_name="key",
        scheme={"type": "http", "scheme": "bearer"},
        requirements={scope: f"Requires a key with the scope `{scope}`." for scope in SCOPES},
    )


class ApiCaller(Struct, frozen=True):
    """The caller: name of the key, empty for a caller without one, and its scopes."""

    name: str = ""
    scopes: frozenset[KeyScope] = frozenset()

    def may(self, scope: str) -> bool:
        """Return whether a scope is allowed: ``admin`` includes all, ``agent`` includes ``chat``."""
        return scope in self.scopes or "admin" in self.scopes or (scope == "chat" and "agent" in self.scopes)

    @property
    def owner(self) -> str:
        """Return the owner of sessions started by this caller: empty, the agent's owner, with the scope ``agent``."""
        return "" if self.may("agent") else api_owner(self.name)


ApiRequest = Request[ApiCaller]


class UnknownKey(Problem):
    """The request has no key, or an unknown one."""

    def __init__(self, message: str) -> None:
        headers = {"www-authenticate": "Bearer"}
        super().__init__(message, 401, kind="authentication_error", code="invalid_api_key", headers=headers)


class ApiKeyVerifier:
    """All accepted keys: those in the store, and ``environment_key``, which has every scope.

    Access without a key doesn't depend on the number of keys: there is none, unless ``keyless``. Then a request without
    a valid key may chat as a guest, and no more.
    """

    def __init__(
        self, store: Store, environment_key: str = "", *, keyless: bool = False, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._environment_digest = digest_of(environment_key) if environment_key else ""
        self._keyless = keyless
        self._clock = clock or SystemClock()
        self._keys: Sequence[ApiKey] = ()
        self._read_at: datetime | None = None

    async def authenticate_caller(self, authorization: str, scope: str) -> ApiCaller:
        """Return the sender of this header; raises a `Problem` with 401 for an unknown key, 403 for a missing scope."""
        kind, _, token = authorization.partition(" ")
        caller = self._find(token.strip(), await self._read_keys()) if kind.lower() == "bearer" else None
        if caller is None and self._keyless:
            caller = ApiCaller(scopes=_KEYLESS_SCOPES)
        if caller is None:
            raise UnknownKey("Unknown API key." if authorization else _NO_KEY)
        if not caller.may(scope):
            has = ", ".join(sorted(caller.scopes)) if caller.name else "no key"
            raise Problem(
                f"This requires a key with the scope `{scope}`; you have {has}.",
                403,
                kind="permission_error",
                code="insufficient_scope",
            )
        return caller

    def _find(self, token: str, keys: Sequence[ApiKey]) -> ApiCaller | None:
        """Compare with every key in constant time."""
        digest, found = digest_of(token), None
        for key in keys:
            if hmac.compare_digest(key.digest, digest):
                found = ApiCaller(key.name, frozenset(key.scopes))
        if hmac.compare_digest(self._environment_digest, digest):
            found = ApiCaller(ENVIRONMENT_KEY, frozenset(SCOPES))
        return found

    async def _read_keys(self) -> Sequence[ApiKey]:
        now = self._clock.now()
        if self._read_at is None or not 0 <= (now - self._read_at).total_seconds() < _CACHE_SECONDS:
            self._keys = await self._store.read(list_keys)
            self._read_at = now
        return self._keys


class ApiFrontDoor:
    """Verifies the keys of requests, and answers unknown ones ever more slowly."""

    def __init__(self, keys: ApiKeyVerifier) -> None:
        self._keys = keys
        self._failed_keys = FailedKeyLimiter()

    async def authenticate(self, request: ApiRequest, scope: str) -> ApiCaller:
        """Return the owner of the request's key; raises a `Problem` for an unknown key or a missing scope."""
        authorization = request.headers.get("authorization", "")
        try:
            return await self._keys.authenticate_caller(authorization, scope)
        except UnknownKey as error:
            raise (await self._failed_keys.refuse(error, request.address)) if authorization else error from error

    async def check_again(self, request: ApiRequest, scope: str) -> None:
        """Raise a `Problem` for a key that is known to be revoked."""
        with suppress(StoreError):
            await self._keys.authenticate_caller(request.headers.get("authorization", ""), scope)

    def render_problem(self, problem: Problem) -> Reply:
        """Return an error in OpenAI's format."""
        return make_json_reply(wrap_problem(problem), status=problem.status, headers=problem.headers)


class _Failures(Struct):
    count: int = 0
    at: float = 0.0


class FailedKeyLimiter:
    """Counts failures per address, for ten minutes after the last one.

    A valid key is never delayed, from any address, so that nobody can lock out others.
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()
        self._delayed = 0

    async def refuse(self, problem: Problem, address: str) -> Problem:
        """Count a failure, wait for its delay, and return the error to answer with."""
        count = self._count_failure(address)
        if str(count).rstrip("0") == "1":  # the first, the tenth, the hundredth
            log.warning("unknown API key from %s (%d in a row)", address, count)
        delay = _compute_delay(count)
        if not delay:
            return problem
        if self._delayed >= _MAX_DELAYED:
            message = "Too many requests with invalid keys. Wait a moment."
            return make_too_many(message, seconds=round(_MAX_DELAY), code="too_many_failed_keys")
        self._delayed += 1
        try:
            await asyncio.sleep(delay)
        finally:
            self._delayed -= 1
        return problem

    def _count_failure(self, address: str) -> int:
        now = monotonic()
        failures = self._addresses.pop(address, _Failures())
        if now - failures.at > _FORGET_SECONDS:
            failures = _Failures()
        failures.count, failures.at = failures.count + 1, now
        self._addresses[address] = failures
        if len(self._addresses) > _MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        return failures.count


def _compute_delay(count: int) -> float:
    """Return the delay in seconds for the answer to a failure."""
    doublings = min(count - _FREE_FAILURES - 1, 10)
    return min(_FIRST_DELAY * 2**doublings, _MAX_DELAY) if doublings >= 0 else 0.0
