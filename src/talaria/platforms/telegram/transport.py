"""HTTP transport for the Bot API whose calls can be cancelled at any moment without leaking a connection.

httpcore loses a connection permanently when its request is cancelled while it connects or begins to send. So no
cancellation reaches it: every request runs in a task of its own, with time-outs inside. A request whose caller is gone
is given up before it is sent, if it has not been sent yet.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import httpx
from telegram.error import NetworkError, TimedOut
from telegram.request import BaseRequest, HTTPXRequest, RequestData

_POOL_TIMEOUTS = 3  # in a row; then the pool counts as exhausted for good and is replaced
_CLOSING = 1.0  # seconds that requests have to end when their connections are closed
_SENDING = "http11.send_request_headers.started"

log = logging.getLogger(__name__)


class TransportTimeouts:
    """How long each phase of a request may take, in seconds; ``file`` is for sending files."""

    def __init__(self, patience: timedelta, file_patience: timedelta) -> None:
        self.phase = patience.total_seconds()
        self.file = file_patience.total_seconds()
        self.pool = self.phase / _POOL_TIMEOUTS


class Transport(BaseRequest):
    """Requests over at most ``connections`` connections, each request in a task of its own.

    With ``closes`` a cancelled call closes all connections (for long polls, which would continue at the server);
    otherwise the answer is read and dropped. After several pool time-outs in a row the connection pool is replaced.
    """

    def __init__(self, connections: int, timeouts: TransportTimeouts, *, closes: bool = False) -> None:
        self._make_pool: Callable[[], _Pool] = lambda: _Pool(connections, timeouts)
        self._pool = self._make_pool()
        self._retired: dict[asyncio.Future[None], _Pool] = {}
        self._slots = asyncio.Semaphore(connections)
        self._timeouts = timeouts
        self._closes = closes
        self._pool_timeouts = 0

    @property
    def read_timeout(self) -> float | None:
        """Return how long an answer may take, in seconds."""
        return self._timeouts.phase

    async def initialize(self) -> None:
        """Do nothing; connections are opened when needed."""

    async def shutdown(self) -> None:
        """Close all connections."""
        for pool in (self._pool, *self._retired.values()):
            await pool.close()
        await asyncio.gather(*self._retired, return_exceptions=True)

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *arguments: Any, **kwargs: Any
    ) -> tuple[int, bytes]:
        """Send a request and return status and body; raises what the library's own transport raises."""
        await self._slots.acquire()
        exchange = _Exchange()
        request = self._pool.start(exchange, url, method, request_data, *arguments, **kwargs)
        request.add_done_callback(self._finished)
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            exchange.abandoned = True
            if self._closes:
                self._replace(_Pool.close)
            raise

    def _finished(self, request: "asyncio.Future[tuple[int, bytes]]") -> None:
        """Release the slot, and replace the pool if it gives out no connections any more."""
        self._slots.release()
        error = None if request.cancelled() else request.exception()
        if not isinstance(error, TimedOut) or not isinstance(error.__cause__, httpx.PoolTimeout):
            self._pool_timeouts = 0 if error is None else self._pool_timeouts
            return
        self._pool_timeouts += 1
        if self._pool_timeouts >= _POOL_TIMEOUTS:
            log.warning("Telegram: no free connection %d times in a row; opening new ones", self._pool_timeouts)
            self._replace(_Pool.drain)

    def _replace(self, end: "Callable[[_Pool], Coroutine[Any, Any, None]]") -> None:
        """Use new connections from now on, and end the old ones."""
        self._pool_timeouts = 0
        retired = asyncio.ensure_future(end(self._pool))
        self._retired[retired] = self._pool
        retired.add_done_callback(self._retired.pop)
        self._pool = self._make_pool()


class _Exchange:
    """One request; ``abandoned`` when its caller is gone."""

    def __init__(self) -> None:
        self.abandoned = False

    async def trace(self, event: str, _: dict[str, Any]) -> None:
        """Stop a request that nobody waits for, at a point where httpcore closes its connection properly."""
        if event == _SENDING and self.abandoned:
            raise NetworkError("the call was cancelled before it was sent")


_current: ContextVar[_Exchange] = ContextVar("telegram_exchange")


async def _attach_trace(request: httpx.Request) -> None:
    request.extensions["trace"] = _current.get().trace


class _Pool:
    """The library's transport with the requests that use it."""

    def __init__(self, connections: int, timeouts: TransportTimeouts) -> None:
        self._requests: dict[asyncio.Future[tuple[int, bytes]], _Exchange] = {}
        self._http = HTTPXRequest(
            connection_pool_size=connections,
            read_timeout=timeouts.phase,
            write_timeout=timeouts.phase,
            connect_timeout=timeouts.phase,
            pool_timeout=timeouts.pool,
            media_write_timeout=timeouts.file,
            httpx_kwargs={"event_hooks": {"request": [_attach_trace]}},
        )

    def start(self, exchange: _Exchange, *arguments: Any, **kwargs: Any) -> "asyncio.Future[tuple[int, bytes]]":
        """Send a request in a task of its own."""
        request = asyncio.ensure_future(self._send(exchange, *arguments, **kwargs))
        self._requests[request] = exchange
        request.add_done_callback(self._requests.pop)
        return request

    async def _send(self, exchange: _Exchange, *arguments: Any, **kwargs: Any) -> tuple[int, bytes]:
        _current.set(exchange)
        return await self._http.do_request(*arguments, **kwargs)

    async def drain(self) -> None:
        """Let the requests end, then close the connections."""
        if self._requests:
            await asyncio.wait(self._requests)
        await self.close()

    async def close(self) -> None:
        """Close the connections; requests that use them fail, those that are connecting end soon."""
        for exchange in self._requests.values():
            exchange.abandoned = True
        await self._http.shutdown()
        if self._requests:
            await asyncio.wait(self._requests, timeout=_CLOSING)
        for request in tuple(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
