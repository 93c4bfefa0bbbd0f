"""Limit the number of bodies being received; slow senders give way to others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BodyReaders:
    """At most ``most`` bodies at once.

    One more cancels the oldest body of the address with most of them, so that many slow bodies, which need no signature
    yet, don't keep others from posting.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[asyncio.Timeout, str] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._addresses)

    @asynccontextmanager
    async def reading(self, address: str, seconds: float) -> AsyncIterator[None]:
        """Receive a body within the block; raises `TimeoutError` in it after that time, or to make room."""
        if len(self._addresses) >= self._most:
            self._drop_oldest()
        async with asyncio.timeout(seconds) as limit:
            self._addresses[limit] = address
            try:
                yield
            finally:
                self._addresses.pop(limit, None)

    def _drop_oldest(self) -> None:
        (busiest, _), *_ = Counter(self._addresses.values()).most_common(1)
        oldest = next(limit for limit, address in self._addresses.items() if address == busiest)
        del self._addresses[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
