"""Close HTTP connections on which the head of a request does not arrive in time."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HeadTimer:
    """Watches the connections of one aiohttp server; a head has ``seconds`` to arrive, also the first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._connections: dict[asyncio.BaseTransport, _Connection] = {}

    def watched(self, server: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return a factory of connections that are watched, for ``loop.create_server``."""
        return lambda: _Connection(server(), self._seconds, self._connections)

    @web.middleware
    async def note_arrival(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Stop the clock when the head of a request has arrived; a middleware of the application."""
        connection = self._connections.get(request.transport) if request.transport else None
        if connection is None:
            return await handler(request)
        with connection:
            return await handler(request)


class _Connection(asyncio.Protocol):
    """Passes everything on to the protocol of the server, and closes the connection where a head takes too long.

    Within a block a request is being answered.
    """

    def __init__(
        self, inner: asyncio.Protocol, seconds: float, connections: dict[asyncio.BaseTransport, "_Connection"]
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._is_answering = False
        self._transport: asyncio.BaseTransport | None = None

    def __enter__(self) -> None:
        self._is_answering = True
        self._stop()

    def __exit__(self, *error: object) -> None:
        self._is_answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._connections[transport] = self
        self._start()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_answering and self._timer is None:
            self._start()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._transport is not None:
            self._connections.pop(self._transport, None)
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._timer = None
        if self._transport is not None:
            self._transport.close()
