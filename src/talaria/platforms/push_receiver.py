"""An HTTP receiver for pushed updates: each is acknowledged when the next one is requested."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Generic, TypeVar

from aiohttp import web
from aiohttp.http import HttpProcessingError
from msgspec import Struct

from talaria.core.errors import Unreachable

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HeaderTimer:
    """Limits the time for request headers of an aiohttp server to ``seconds``, from the connection on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._connections: dict[asyncio.BaseTransport, _Connection] = {}

    def wrap(self, server: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return a factory of timed connections, for ``loop.create_server``."""
        return lambda: _Connection(server(), self._seconds, self._connections)

    @web.middleware
    async def stop_timer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Stop the timer when the headers of a request have arrived; a middleware of the application."""
        connection = self._connections.get(request.transport) if request.transport else None
        if connection is None:
            return await handler(request)
        with connection:
            return await handler(request)


class _Connection(asyncio.Protocol):
    """Passes everything to the server's protocol, and closes the connection if headers take too long.

    Within the block a request is being answered.
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


T = TypeVar("T")


_ACCEPT_STEPS = 5


_HEADER_TIMEOUT = timedelta(seconds=10)


log = logging.getLogger(__name__)


class PushedItem(Struct, Generic[T], frozen=True):
    """A pushed update, and its acknowledgement."""

    item: T
    accepted: asyncio.Future[bool]

    def acknowledge(self, *, accepted: bool) -> None:
        """Report to the sender that it was received, or must be sent again."""
        if not self.accepted.done():
            self.accepted.set_result(accepted)


class PushReceiver(Generic[T]):
    """The server. A sender waits for ``patience`` at most, then has to retry; headers have ``head`` to arrive."""

    def __init__(self, host: str, port: int, patience: timedelta, head: timedelta = _HEADER_TIMEOUT) -> None:
        self._host = host
        self._port = port
        self._timeout = patience
        self._header_timeout = head
        self._queue: asyncio.Queue[PushedItem[T]] = asyncio.Queue()
        self._is_closing = False

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is pending."""
        return self._queue.empty()

    @asynccontextmanager
    async def serve(
        self, path: str, receive: Callable[[web.Request], Awaitable[web.StreamResponse]], *, largest: int
    ) -> AsyncIterator[None]:
        """Listen, and let ``receive`` answer posts to a path; raises `Unreachable` if that is impossible."""
        timer = HeaderTimer(self._header_timeout.total_seconds())
        app = web.Application(client_max_size=largest, middlewares=[timer.stop_timer])
        app.router.add_post(path, receive)
        log.addFilter(_is_own_error)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, logger=log)
        listener = self._open_listener()
        await runner.setup()
        listening: asyncio.Server | None = None
        try:
            if runner.server is None:
                raise Unreachable("couldn't set up the server")
            loop = asyncio.get_running_loop()
            listening = await loop.create_server(timer.wrap(runner.server), sock=listener)
            yield
        finally:
            self._is_closing = True
            while not self._queue.empty():
                self._queue.get_nowait().acknowledge(accepted=False)
            # Accept nothing more, and let connections being accepted arrive: closed in between, such a connection would
            # be lost, and its sender would wait for an answer in vain.
            asyncio.get_running_loop().remove_reader(listener)
            for _ in range(_ACCEPT_STEPS):
                await asyncio.sleep(0)
            if listening is not None:
                listening.close()
            await runner.cleanup()
            listener.close()

    async def push(self, item: T) -> bool:
        """Wait until it is taken, and return whether it was."""
        if self._is_closing:
            return False
        pushed = PushedItem(item, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(pushed)
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                return await pushed.accepted
        except TimeoutError:
            return False

    async def next_item(self, timeout_after: timedelta | None = None) -> PushedItem[T] | None:
        """Return the next update, to be acknowledged by the caller; ``None`` if none comes in time."""
        try:
            async with asyncio.timeout(timeout_after.total_seconds() if timeout_after else None):
                while (pushed := await self._queue.get()).accepted.done():
                    pass
                return pushed
        except TimeoutError:
            return None

    def _open_listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            raise Unreachable(f"can't listen on {self._host}:{self._port}: {error}") from error


def _is_own_error(record: logging.LogRecord) -> bool:
    """Return whether a log line is about our code: invalid HTTP is answered as such, and is not a bug."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | web.RequestPayloadError))
