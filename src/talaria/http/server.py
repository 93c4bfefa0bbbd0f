"""Serve an ASGI application on a socket inside a larger process, with limits on connections and headers."""

import asyncio
import ipaddress
import resource
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, cast

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from talaria.core.errors import Refused
from talaria.http.errors import Problem
from talaria.http.routing import Receive, Reply, Scope, Send

_MIN_CONNECTIONS = 16
_MAX_REFUSED = 16
_LINGER = 2.0  # seconds in which a refused client may read the answer
_MAX_DISCARDED = 1_000_000  # bytes that a refused client may still send meanwhile
_BACKLOG = 1024  # connections that the system accepts before we do
_KEEP_ALIVE = 75  # seconds; longer than common proxies, so that they close first
_ACCEPT_BATCH = 16  # few, so that excess connections are closed before the system refuses more
_SHUTDOWN_SECONDS = 5  # seconds for clients to read the end of their streams


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Limits of a server: ``head_bytes`` and ``head_seconds`` for request headers, and number of connections."""

    connections: int = 512
    head_bytes: int = 64 * 1024
    head_seconds: float = 10.0

    @property
    def most(self) -> int:
        """Return the maximum number of connections: half of the process's file descriptors stay free."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        available = self.connections if files == resource.RLIM_INFINITY else files // 2
        return min(self.connections, max(available, _MIN_CONNECTIONS))


class ConnectionPool:
    """All open connections of a server; a new one may replace the one that was idle longest.

    Idle connections have no complete request: they are between two requests, or have sent only part of the headers.
    """

    def __init__(self, limits: ConnectionLimits, render_problem: Callable[[Problem], Reply]) -> None:
        self.limits = limits
        self.render_problem = render_problem
        self._open: set[LimitedProtocol] = set()
        self._idle: dict[LimitedProtocol, None] = {}  # in the order in which they became idle
        self._refused: set[LimitedProtocol] = set()
        self._max_connections = limits.most

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "LimitedProtocol") -> bool:
        """Admit a new connection; ``False`` if all connections have active requests."""
        if len(self._open) >= self._max_connections:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.release(oldest)
            oldest.abort()
        self._open.add(connection)
        self._idle[connection] = None
        return True

    def track_refused(self, connection: "LimitedProtocol") -> bool:
        """Return whether a refused connection may stay open until its client has read the reason."""
        if len(self._refused) >= _MAX_REFUSED:
            return False
        self._refused.add(connection)
        return True

    def release(self, connection: "LimitedProtocol") -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        self._refused.discard(connection)
        self._idle.pop(connection, None)

    def mark(self, connection: "LimitedProtocol", *, idle: bool) -> None:
        """Record whether a connection is idle."""
        self._idle.pop(connection, None)
        if idle and connection in self._open:
            self._idle[connection] = None


class _SmallEvent(asyncio.Event):
    """An event with a list of waiters; an empty deque takes 600 bytes."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[Any]] = []  # type: ignore[assignment]
        self._value = False


class _WriteFlow(FlowControl):
    """The flow control of a connection, with a small event."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = False
        self._is_writable_event = _SmallEvent()
        self._is_writable_event.set()


class _Pipeline(list[Any]):
    """Requests that wait for the reply to an earlier one; nearly always empty, so no deque."""

    __slots__ = ()

    def appendleft(self, item: object) -> None:
        """Add a request that is served after all others."""
        self.insert(0, item)


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection within the limits of its pool.

    Headers that are too large are answered with 431, late ones with 408, and a connection too many with 503. Bytes
    without progress of the parser count as headers, including endless trailers and chunk extensions.
    """

    # With more than 30 attributes in its dictionary, an object no longer shares their names with others: 1.3 kB each.
    __slots__ = (
        "_discarded", "_head_bytes", "_in_request", "_is_sent", "_is_too_large", "_pool", "_refused", "_timer",
        "_unparsed",
    )  # fmt: skip

    def __init__(self, pool: ConnectionPool, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = _Pipeline()  # type: ignore[assignment]
        self._pool = pool
        self._timer: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes since the parser last made progress
        self._head_bytes = 0
        self._is_too_large = False
        self._in_request = False  # complete up to its body, and not answered
        self._is_sent = True  # the last request, with its body
        self._refused = False
        self._discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Join the pool, or refuse if it is full."""
        super().connection_made(transport)
        self.flow = _WriteFlow(transport)
        if self._pool.admit(self):
            self._start_timer()
        elif not self._pool.track_refused(self):
            self.abort()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many open connections. Try again in a moment.", "busy")

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the pool."""
        self._stop_timer()
        self._pool.release(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_timer()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse the received data within the limits."""
        if self._refused:
            self._discard(len(data))
            return
        if not self._in_request and self._timer is None:  # the first bytes of the next request
            self._start_timer()
        self._unparsed += len(data)
        super().data_received(data)
        most = self._pool.limits.head_bytes
        if self._is_too_large or self._unparsed > most:
            message = f"Request headers may have at most {most:,} bytes."
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "head_too_large")

    def on_message_begin(self) -> None:
        """Start counting header bytes."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the URL."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; excess ones are not stored."""
        self._head_bytes += len(name) + len(value) + 4
        self._is_too_large = self._is_too_large or self._head_bytes > self._pool.limits.head_bytes
        if not self._is_too_large:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass on a request whose headers are complete."""
        self._unparsed = 0
        if self._is_too_large:
            return
        self._in_request, self._is_sent = True, False
        self._stop_timer()
        self._pool.mark(self, idle=False)
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # its task has not begun
            self.cycle.message_event = _SmallEvent()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self._unparsed = 0
        if self._in_request:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that a request was received completely."""
        self._unparsed, self._is_sent = 0, True
        if self._in_request:
            super().on_message_complete()
        else:  # it was answered before it had arrived
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request; the rest of an unsent body must arrive in time."""
        is_last = not self.pipeline
        super().on_response_complete()
        if not is_last or self.transport.is_closing():
            return
        self._in_request = False
        self._pool.mark(self, idle=True)
        if not self._is_sent:
            self._start_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self._pool.limits.head_seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        """Close a connection whose request didn't arrive in time."""
        self._timer = None
        seconds = self._pool.limits.head_seconds
        message = f"The request headers didn't arrive within {seconds:g} s."
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, message, "head_timeout")

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        """Answer with an error and close; discard further input for a moment, so that the answer arrives."""
        if self._refused or self.transport.is_closing():
            return
        if self._in_request or not self._is_sent:  # its answer was started or sent
            self.abort()
            return
        self._refused = True
        self._stop_timer()
        self._pool.mark(self, idle=True)
        reply = self._pool.render_problem(Problem(message, status, code=code))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {reply.content_type}\r\n"
            f"content-length: {len(reply.body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + reply.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER, self.abort)

    def _discard(self, count: int) -> None:
        self._discarded += count
        if self._discarded > _MAX_DISCARDED:
            self.abort()


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the process and the backlog unchanged, and sleeps while it is idle."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop accepting connections and end `serve`."""
        self.should_exit = True
        self._stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(_BACKLOG)

    async def main_loop(self) -> None:
        """Wait for `stop`, where uvicorn would look for it and set the time of replies ten times a second."""
        await self._stopping.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class ServedApplication(Protocol):
    """An ASGI application that can refuse new requests; ``ending`` says so."""

    ending: bool

    def render_problem(self, problem: Problem) -> Reply:
        """Return an error as a complete reply."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Serve one request."""


@asynccontextmanager
async def serve_application(
    application: ServedApplication,
    host: str,
    port: int,
    jobs: asyncio.TaskGroup,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[str]:
    """Serve within the block and yield the address; requests still running shortly after it are cancelled.

    Raises `Refused` if the address can't be bound.
    """
    listener = _open_listener(host, port)
    connections = ConnectionPool(limits or ConnectionLimits(), application.render_problem)
    config = uvicorn.Config(
        cast("Any", application),
        http=cast("type[asyncio.Protocol]", partial(LimitedProtocol, connections)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        loop="asyncio",
        log_config=None,
        log_level="critical",  # requests are not logged, and our own errors are logged elsewhere
        access_log=False,
        server_header=False,
        date_header=False,  # replies have the time at which they are sent
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=_ACCEPT_BATCH,
    )
    server = _Server(config)
    server_task = jobs.create_task(server.serve(sockets=[listener]))
    displayed_host = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{displayed_host}:{listener.getsockname()[1]}"
    finally:
        application.ending = True
        server.stop()
        await asyncio.wait([server_task])
        listener.close()


def _open_listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    # Without the protocol asyncio doesn't disable Nagle's algorithm, and each small reply is delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 (takes no keyword)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise Refused(f"Can't listen on {host}:{port} ({reason}). Set api.host and api.port, or use --port.") from error
    return listener
