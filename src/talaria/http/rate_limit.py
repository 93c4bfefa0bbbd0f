"""Rate limits and concurrency limits per caller."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from talaria.http.errors import make_too_many

_MINUTE = 60.0
_BURST_SECONDS = 10.0


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
