"""How often and for how much at once a key may ask."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from talaria.api.problems import too_many

_MINUTE = 60.0
_BURST_SECONDS = 10.0


class Limits:
    """Counts for each key; 0 means no limit.

    ``per_minute`` fills a bucket little by little: who was silent may ask for ten seconds' worth at once.
    """

    def __init__(self, per_minute: int, at_once: int) -> None:
        self._rate = per_minute / _MINUTE
        self._burst = max(self._rate * _BURST_SECONDS, 1.0)
        self._at_once = at_once
        self._buckets: dict[str, tuple[float, float]] = {}
        self._running: dict[str, int] = {}
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    @property
    def running(self) -> int:
        """How many requests are being answered."""
        return sum(self._running.values())

    async def rest(self) -> None:
        """Wait until no request is being answered."""
        await self._at_rest.wait()

    def count(self, key: str) -> None:
        """Count a request, or raise a `Problem` where there were too many lately."""
        if not self._rate:
            return
        now = monotonic()
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(left + (now - at) * self._rate, self._burst)
        if left < 1:
            wait = round((1 - left) / self._rate + 0.5)
            raise too_many("Too many requests: wait a little.", seconds=wait, code="rate_limit_exceeded")
        self._buckets[key] = left - 1, now

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Count a request as running within the block, or raise a `Problem` where too many are."""
        running = self._running.get(key, 0)
        if self._at_once and running >= self._at_once:
            raise too_many(
                f"{self._at_once} requests of this key run already: wait for one to end.",
                seconds=1,
                code="concurrency_limit_exceeded",
            )
        self._running[key] = running + 1
        self._at_rest.clear()
        try:
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
            if not self._running:
                self._at_rest.set()
