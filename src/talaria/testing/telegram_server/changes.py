"""Wait for a condition, without polling."""

import asyncio
from collections.abc import Callable


class Changes:
    """A changing state, and the tasks waiting for it."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def happened(self) -> None:
        """Wake all waiting tasks."""
        self._next.set()
        self._next = asyncio.Event()

    async def until(self, holds: Callable[[], bool], *, within: float) -> None:
        """Return as soon as ``holds()``; raise `TimeoutError` after so many seconds."""
        async with asyncio.timeout(within):
            while not holds():
                await self._next.wait()
