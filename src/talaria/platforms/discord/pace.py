"""How fast Discord is spoken to: it says how many requests of a kind are left, and until when."""

import asyncio

from discord import RateLimited
from discord.http import Ratelimit

# A pause this short is kept here; any longer one is for delivery to plan with.
SHORT_PAUSE = 1.0


class Pace(Ratelimit):
    """Requests of one kind at one place.

    The library's own would hold an answer back until the next request may go, and refuse requests that may.
    """

    __slots__ = ()

    async def acquire(self) -> None:
        """Wait for a moment if none is left. Raises `RateLimited` where it would be longer than that."""
        self._last_request = self._loop.time()
        while self.expires is not None and self.remaining <= 0:
            pause = self.expires - self._loop.time()
            if pause > SHORT_PAUSE:
                raise RateLimited(pause)
            if pause > 0:
                await asyncio.sleep(pause)
            if self.is_expired():
                self.reset()  # type: ignore[no-untyped-call]
        self.remaining -= 1
        self.outgoing += 1

    async def __aexit__(self, *failure: object) -> None:
        self.outgoing -= 1
