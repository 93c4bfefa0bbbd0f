"""Bodies that are being received: a limited number, in which slow senders give way to others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Readers:
    """At most ``most`` bodies at once.

    One more ends the wait for the oldest body of the address that has most of them, so that many slow bodies, which
    need no signature yet, do not keep others from posting.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[asyncio.Timeout, str] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._addresses)

    @asynccontextmanager
    async def reading(self, address: str, seconds: float) -> AsyncIterator[None]:
        """Let a body be received within the block; raises `TimeoutError` in it after that time, or to make room."""
        if len(self._addresses) >= self._most:
            self._make_room()
        async with asyncio.timeout(seconds) as limit:
            self._addresses[limit] = address
            try:
                yield
            finally:
                self._addresses.pop(limit, None)

    def _make_room(self) -> None:
        (greedy, _), *_ = Counter(self._addresses.values()).most_common(1)
        oldest = next(limit for limit, address in self._addresses.items() if address == greedy)
        del self._addresses[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
