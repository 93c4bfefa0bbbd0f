"""What lies between a turn and the client that follows it: a turn never waits, and what waits does not grow."""

import asyncio
from collections import deque

from talaria.core.errors import TalariaError
from talaria.core.events import TextAdded, ToolProgressed, TurnEvent

_MOST = 512


class Channel:
    """Events of one turn, for one reader.

    Words that nobody has fetched yet become one event, so no more lies here than the reply is long. Of what tools show
    while they run, what a slow reader has no time for is left out.
    """

    def __init__(self) -> None:
        self._events: deque[TurnEvent] = deque()
        self._error: TalariaError | None = None
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: TurnEvent) -> None:
        """Add an event."""
        if self._closed:
            return
        last = self._events[-1] if self._events else None
        if isinstance(event, TextAdded) and isinstance(last, TextAdded):
            self._events[-1] = TextAdded(last.text + event.text)
        elif len(self._events) < _MOST or not isinstance(event, ToolProgressed):
            self._events.append(event)
        self._wake()

    def close(self, error: TalariaError | None = None) -> None:
        """Let the reader come to an end behind what lies here, or to this error."""
        if not self._closed:
            self._closed, self._error = True, error
            self._wake()

    async def ready(self) -> bool:
        """Wait until there is something; ``False`` at the end, where an error is raised if there was one."""
        while not self._events and not self._closed:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if not self._events and self._error is not None:
            raise self._error
        return bool(self._events)

    async def next(self) -> TurnEvent | None:
        """Return what is next; ``None`` at the end, where an error is raised if there was one."""
        return self._events.popleft() if await self.ready() else None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
