"""HTTP connections with limits: size and time of a request head, number of connections."""

import asyncio
import resource
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from talaria.api.problems import Problem

_FEWEST = 16
_REFUSED_AT_ONCE = 16
_LINGER = 2.0  # seconds in which a refused client may read the answer
_DISCARDED = 1_000_000  # bytes that a refused client may still send meanwhile


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """What one server accepts: ``head_bytes`` and ``head_seconds`` for the head of a request, and connections."""

    connections: int = 512
    head_bytes: int = 64 * 1024
    head_seconds: float = 10.0

    @property
    def most(self) -> int:
        """How many connections may be open: half of the files that this process may open is for everything else."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = self.connections if files == resource.RLIM_INFINITY else files // 2
        return min(self.connections, max(room, _FEWEST))


class ConnectionPool:
    """All open connections of one server; makes room for a new one by closing the one that was idle for longest.

    Idle are those without a complete request: between two requests, or with a head that was sent by half.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[LimitedProtocol] = set()
        self._idle: dict[LimitedProtocol, None] = {}  # in the order in which they became idle
        self._refused: set[LimitedProtocol] = set()
        self._most = limits.most

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "LimitedProtocol") -> bool:
        """Take a new connection; ``False`` where all places are taken by requests that are being answered."""
        if len(self._open) >= self._most:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.release(oldest)
            oldest.abort()
        self._open.add(connection)
        self._idle[connection] = None
        return True

    def may_explain(self, connection: "LimitedProtocol") -> bool:
        """Tell whether a connection that was not admitted may stay open until its client has read why."""
        if len(self._refused) >= _REFUSED_AT_ONCE:
            return False
        self._refused.add(connection)
        return True

    def release(self, connection: "LimitedProtocol") -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)
        self._refused.discard(connection)
        self._idle.pop(connection, None)

    def mark(self, connection: "LimitedProtocol", *, idle: bool) -> None:
        """Note whether a connection is idle from now on."""
        self._idle.pop(connection, None)
        if idle and connection in self._open:
            self._idle[connection] = None


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection within the limits of its pool.

    A head that is too large is answered with 431, one that does not come in time with 408, and a connection too many
    with 503. Bytes that lead to no progress of the parser count as head: endless trailers and chunk extensions too.
    """

    def __init__(self, pool: ConnectionPool, **options: Any) -> None:
        super().__init__(**options)
        self._pool = pool
        self._timer: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes since the parser last made progress
        self._head = 0
        self._is_too_large = False
        self._in_request = False  # one is complete up to its body, and not answered
        self._is_sent = True  # the last request, with its body
        self._refused = False
        self._discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take part, unless there are too many."""
        super().connection_made(transport)
        if self._pool.admit(self):
            self._start_timer()
        elif not self._pool.may_explain(self):
            self.abort()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections are open: try again soon.", "busy")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._stop_timer()
        self._pool.release(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_timer()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came, as long as it is within the limits."""
        if self._refused:
            self._discard(len(data))
            return
        if not self._in_request and self._timer is None:  # the first bytes of the next request
            self._start_timer()
        self._unparsed += len(data)
        super().data_received(data)
        most = self._pool.limits.head_bytes
        if self._is_too_large or self._unparsed > most:
            message = f"The head of a request may have {most:,} bytes at most."
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "head_too_large")

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the address."""
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; what is too much is not stored."""
        self._head += len(name) + len(value) + 4
        self._is_too_large = self._is_too_large or self._head > self._pool.limits.head_bytes
        if not self._is_too_large:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand a request on, now that its head is there."""
        self._unparsed = 0
        if self._is_too_large:
            return
        self._in_request, self._is_sent = True, False
        self._stop_timer()
        self._pool.mark(self, idle=False)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand a part of a body on."""
        self._unparsed = 0
        if self._in_request:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request was sent completely."""
        self._unparsed, self._is_sent = 0, True
        if self._in_request:
            super().on_message_complete()
        else:  # it was answered before it had come
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request; one whose body was not sent yet has to be sent in time."""
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
        """Close a connection whose request did not come in time."""
        self._timer = None
        seconds = self._pool.limits.head_seconds
        message = f"The head of the request did not come within {seconds:g} s."
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, message, "head_timeout")

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        """Answer with an error and close; what still comes is discarded for a moment, so that the answer arrives."""
        if self._refused or self.transport.is_closing():
            return
        if self._in_request or not self._is_sent:  # whose answer has begun, or was sent
            self.abort()
            return
        self._refused = True
        self._stop_timer()
        self._pool.mark(self, idle=True)
        body = msgspec.json.encode(Problem(message, status, code=code).answer)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER, self.abort)

    def _discard(self, count: int) -> None:
        self._discarded += count
        if self._discarded > _DISCARDED:
            self.abort()
