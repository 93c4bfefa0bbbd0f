"""Checks before a request reaches its route: host name, origin of the page, rate and concurrency of the caller."""

import asyncio
import ipaddress
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from msgspec import Struct

from talaria.http.errors import Problem, make_too_many

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{0,255}))(?::[0-9]{1,5})?")
_MAX_AGE = "600"
_EXPOSED_HEADERS = ("x-request-id", "retry-after", "idempotent-replayed", "location")
_MINUTE = 60.0
_BURST_SECONDS = 10.0


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class OriginPolicy(Struct, frozen=True):
    """Allowed hosts and origins: ``bound`` is the listening address, ``names`` are further host names.

    If the server listens for other machines, every host name is allowed unless some are given: those requests need a
    key. Pages of other origins may read ``exposed_headers`` in addition to the server's own.
    """

    bound: str
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    exposed_headers: tuple[str, ...] = ()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise a `Problem` for a page using a foreign host name for this machine, or from a foreign origin.

        Such a page needs no key where none is required, and may post without a preflight request.
        """
        host, known = _parse_host(headers.get("host", "")), {*_LOCAL, self.bound.lower(), *self.names}
        if host is None or (host not in known and (self.names or is_loopback(self.bound))):
            raise Problem(
                "Unknown host. Use localhost, or add the name to the setting `api.hosts`.", 421, code="unknown_host"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin, headers.get("host", "")):
            raise Problem(
                "This origin isn't allowed. Add it to the setting `api.cors_origins`.",
                403,
                kind="permission_error",
                code="origin_not_allowed",
            )

    def reply_headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers that let a browser page read the reply."""
        if origin is None or not self._is_listed(origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": ", ".join((*self.exposed_headers, *_EXPOSED_HEADERS)),
            "vary": "Origin",
        }

    def preflight_headers(self, headers: Mapping[str, str], methods: str) -> dict[str, str]:
        """Return the headers of a preflight response.

        All request headers are allowed: official clients add their own.
        """
        allowed = self.reply_headers(headers.get("origin"))
        if not allowed:
            return {}
        return allowed | {
            "access-control-allow-methods": methods,
            "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
            "access-control-max-age": _MAX_AGE,
            "vary": "Origin, Access-Control-Request-Headers",
        }

    def _is_allowed(self, origin: str, host: str) -> bool:
        return self._is_listed(origin) or origin.partition("://")[2].lower() == host.lower()

    def _is_listed(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins


def _parse_host(host: str) -> str | None:
    """Return the host name in a header, without the port; ``None`` for an invalid one."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"] or "").rstrip(".").lower() if found else None


class RequestLimiter:
    """Counts requests per key; 0 means no limit.

    ``per_minute`` is a token bucket: after a pause, ten seconds' worth of requests may come at once.
    """

    def __init__(self, per_minute: int, at_once: int) -> None:
        self._rate = per_minute / _MINUTE
        self._burst = max(self._rate * _BURST_SECONDS, 1.0)
        self._max_running = at_once
        self._buckets: dict[str, tuple[float, float]] = {}
        self._running: dict[str, int] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """Return the number of running requests."""
        return sum(self._running.values())

    async def rest(self) -> None:
        """Wait until no request is running."""
        await self._idle.wait()

    def count(self, key: str) -> None:
        """Count a request, or raise a `Problem` if there were too many."""
        if not self._rate:
            return
        now = monotonic()
        tokens, at = self._buckets.get(key, (self._burst, now))
        tokens = min(tokens + (now - at) * self._rate, self._burst)
        if tokens < 1:
            wait = round((1 - tokens) / self._rate + 0.5)
            raise make_too_many("Too many requests. Wait a moment.", seconds=wait, code="rate_limit_exceeded")
        self._buckets[key] = tokens - 1, now

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Count a request as running within the block, or raise a `Problem` if there are too many."""
        running = self._running.get(key, 0)
        if self._max_running and running >= self._max_running:
            raise make_too_many(
                f"{self._max_running} requests with this key are already running. Wait for one to finish.",
                seconds=1,
                code="concurrency_limit_exceeded",
            )
        self._running[key] = running + 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
            if not self._running:
                self._idle.set()
