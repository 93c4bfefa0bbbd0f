"""Notice that nothing comes any more."""

import asyncio
from typing import Protocol


class Body(Protocol):
    """Bytes that come as they please."""

    async def readany(self) -> bytes:
        """Return what came since, at least a byte, or nothing at the end."""


class SilenceWatch:
    """Reads a body, and ends a read that takes too long with `TimeoutError`.

    Only what the caller reports with `heard` counts: bytes that say nothing, as keep-alive comments, are silence. One
    timer serves all reads: `asyncio.timeout` around each would cost more than decoding what was read.
    """

    def __init__(self, body: Body, first_byte_by: float, limit: float) -> None:
        self._body = body
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._until = first_byte_by
        self._is_news = False
        self._is_late = False
        self._reader: asyncio.Task[object] | None = None
        self._timer = self._loop.call_at(first_byte_by, self._look)

    async def read(self) -> bytes:
        """Return what came since, or nothing at the end."""
        if self._is_news:
            self._until = self._loop.time() + self._limit
            self._is_news = False
        reader = self._reader = asyncio.current_task()
        assert reader is not None
        cancelled_before = reader.cancelling()
        try:
            return await self._body.readany()
        except asyncio.CancelledError:
            if self._is_late and reader.uncancel() <= cancelled_before:
                raise TimeoutError from None
            raise
        finally:
            self._reader = None

    def heard(self) -> None:
        """Count what was read last: the next silence begins with the next read."""
        self._is_news = True

    def close(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if self._reader is None:
            self._timer = self._loop.call_at(now + self._limit, self._look)
        elif now < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._is_late = True
            self._reader.cancel()
