"""HTTP requests: a connection pool with time-outs and our error types, and server-sent events."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Protocol

from talaria.core.errors import MalformedReply, ProviderUnreachable, ReplyTooLong
from talaria.http_client.connection import (
    HttpAddress,
    HttpConnection,
    HttpReply,
    HttpRoute,
    NotHttp,
    Timeouts,
    read_url,
)
from talaria.http_client.dial import ProxyRefused, ProxyUnsupported, Resolve, dial, find_route

MAX_EVENT = 4 * 1024 * 1024  # bytes of one event of a stream
MAX_BODY = 8 * 1024 * 1024  # bytes of a reply that is not streamed


class Body(Protocol):
    """A source of bytes."""

    async def readany(self) -> bytes:
        """Return new data, at least a byte, or nothing at the end."""


class SilenceWatch:
    """Reads a body, and ends a read that takes too long with `TimeoutError`.

    Only data that the caller reports with `record_data` counts: keep-alive comments are silence. One timer serves all
    reads: `asyncio.timeout` around each would cost more than decoding.
    """

    def __init__(self, body: Body, first_byte_by: float, limit: float) -> None:
        self._body = body
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._until = first_byte_by
        self._is_news = False
        self._is_late = False
        self._reader: asyncio.Task[object] | None = None
        self._timer = self._loop.call_at(first_byte_by, self._check_silence)

    async def read(self) -> bytes:
        """Return new data, or nothing at the end."""
        if self._is_news:
            self._until = self._loop.time() + self._limit
            self._is_news = False
            if self._until < self._timer.when():  # it was set for the first byte, which may come much later
                self._timer.cancel()
                self._timer = self._loop.call_at(self._until, self._check_silence)
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

    def record_data(self) -> None:
        """Count the last read: the next silence starts with the next read."""
        self._is_news = True

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _check_silence(self) -> None:
        now = self._loop.time()
        if self._reader is None:
            self._timer = self._loop.call_at(now + self._limit, self._check_silence)
        elif now < self._until:
            self._timer = self._loop.call_at(self._until, self._check_silence)
        else:
            self._is_late = True
            self._reader.cancel()


_TRUST = "If your network replaces certificates, set SSL_CERT_FILE to the file with its own."
_CHECK_PROXY = "Check HTTPS_PROXY and HTTP_PROXY in the environment, or name the host in NO_PROXY."
DRAIN_SECONDS = 0.2
KEPT_SECONDS = 60
CLOSE_SECONDS = 1


class EventParser:
    """Collects bytes and returns the data of each complete event.

    Lines end in LF, CRLF or CR; several data lines of one event are joined by LF; comments, event names, ids and an
    unterminated event are dropped. Raises `ReplyTooLong` for an event that is too large.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._first = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that ``chunk`` completes, oldest first."""
        if self._data or self._rest or self._after_cr or not chunk.endswith(b"\n\n") or b"\r" in chunk:
            return self._feed_lines(chunk)
        events: list[bytes] = []
        for block in chunk[:-2].split(b"\n\n"):  # whole events, as most servers send them: one line of data each
            if block.startswith(b"data: ") and b"\n" not in block:
                self._first = False
                events.append(block[6:])
            else:
                events += self._feed_lines(block + b"\n\n")
        return events

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        for line in self._split_lines(chunk):
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._data_size += len(line)
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data, self._data_size = [], 0
            elif line == b"data":
                self._data.append(b"")
        if self._data_size + self._rest_size > MAX_EVENT:
            raise ReplyTooLong(f"a stream event is larger than {MAX_EVENT // 1024**2} MB")
        return events

    def _split_lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        lines = chunk.splitlines()
        self._after_cr = chunk.endswith(b"\r")
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if lines and self._rest:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest, self._rest_size = [], 0
        if rest:
            self._rest.append(rest)
            self._rest_size += len(rest)
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        return lines


class Answer:
    """A response whose headers have arrived and whose body is still coming; header names are in lower case."""

    def __init__(self, reply: HttpReply, connection: HttpConnection, first_byte_by: float, silence: float) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self.content_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._body = connection
        self._watch = SilenceWatch(connection, first_byte_by, silence)
        self._events = EventParser()

    async def events(self) -> list[bytes] | None:
        """Return the data of the next events, at least one, or ``None`` at the end of the body."""
        while chunk := await self._read():
            if events := self._events.feed(chunk):
                self._watch.record_data()
                return events
        return None

    async def body(self, limit: int = MAX_BODY) -> bytes:
        """Return the body; raises `ReplyTooLong` if it has more than ``limit`` bytes."""
        chunks, size = [], 0
        while chunk := await self._read():
            self._watch.record_data()
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise ReplyTooLong(f"the answer has more than {limit} bytes")
        return b"".join(chunks)

    async def drain(self) -> None:
        """Read the rest, so that the connection can be reused; give up soon if the end doesn't come."""
        if self._body.at_eof():
            return
        with suppress(OSError, NotHttp):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._body.at_eof():
                    await self._body.readany()

    def close(self) -> None:
        """Stop the silence timer."""
        self._watch.close()

    async def _read(self) -> bytes:
        try:
            return await self._watch.read()
        except TimeoutError as error:
            raise ProviderUnreachable("the provider stopped sending", cause="the reply stopped midway") from error
        except OSError as error:
            raise ProviderUnreachable(
                f"the connection was lost: {_describe_error(error)}", cause="the connection was lost"
            ) from error
        except NotHttp as error:
            raise MalformedReply(f"the provider doesn't speak HTTP: {_describe_error(error)}") from error


@cache
def load_trusted_certificates(_paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """Load the system's certificates, or those of ``SSL_CERT_FILE``; all pools share them, nearly a megabyte."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class HttpPool:
    """Connections to all providers, opened when first needed, and closed by the pool's creator.

    Proxies come from the environment, except for this machine itself. They are looked up once per server. ``tls`` are
    the trusted certificates, by default the system's. A pool that is ``direct`` uses no proxies; ``resolve`` replaces
    the lookup of servers, so that each address can be checked before it is connected to; proxies look up their own.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        direct: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        self._tls = tls
        self._direct = direct
        self._resolve = resolve
        self._routes: dict[HttpAddress, HttpRoute] = {}
        self._connections: set[HttpConnection] = set()
        self._idle: dict[HttpAddress, list[tuple[float, HttpConnection]]] = {}

    @asynccontextmanager
    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeouts: Timeouts
    ) -> AsyncGenerator[Answer, None]:
        """Send ``body``; leaving the block closes the connection, unless its response was read to the end."""
        async with self.request("POST", url, body, headers, timeouts) as answer:
            yield answer

    @asynccontextmanager
    async def get(self, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> AsyncGenerator[Answer, None]:
        """Request ``url``."""
        async with self.request("GET", url, None, headers, timeouts) as answer:
            yield answer

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        """Post ``body`` and return status and headers of the response; raises `ValueError` for an invalid request."""
        to, path = read_url(url)
        self._find_route(to).request("POST", path, headers, body)
        async with self.post(url, body, headers, Timeouts()) as answer:
            await answer.drain()
            return answer.status, answer.headers

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        self._idle.clear()
        for connection in self._connections:
            connection.abort()
        if self._connections:
            await asyncio.wait([connection.lost for connection in self._connections], timeout=CLOSE_SECONDS)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        *,
        repeats: bool = True,
    ) -> AsyncGenerator[Answer, None]:
        """Send a request and yield the response when its headers are here; redirects are not followed.

        If it ``repeats``, it is sent again on a new connection if the server closes a reused one without an answer.
        The server may have processed it all the same, so what must not happen twice may not repeat.
        """
        connect = timeouts.connect.total_seconds()
        first_byte_by = asyncio.get_running_loop().time() + connect + timeouts.first_byte.total_seconds()
        try:
            to, path = read_url(url)
            route = self._find_route(to)
            request = route.request(method, path, headers, body)
            async with asyncio.timeout_at(first_byte_by):
                reply, connection = await self._ask(route, request, connect, repeats=repeats)
        except NotHttp as error:
            raise MalformedReply(f"{_strip_query(url)} doesn't speak HTTP: {_describe_error(error)}") from error
        except (OSError, ValueError) as error:
            raise self._make_unreachable(url, error) from error
        answer = Answer(reply, connection, first_byte_by, timeouts.silence.total_seconds())
        try:
            yield answer
        finally:
            answer.close()
            self._release(to, connection)

    def _make_unreachable(self, url: str, error: OSError | ValueError) -> ProviderUnreachable:
        """Return the error for a failed connection, with what may help behind a proxy."""
        message = f"{_strip_query(url)} doesn't answer: {_describe_error(error)}"
        try:
            proxy = self._find_route(read_url(url)[0]).proxy
        except ProxyUnsupported:
            return ProviderUnreachable(message, cause=_describe_error(error), remedy=_CHECK_PROXY)
        except ValueError:  # an invalid address
            return ProviderUnreachable(message, cause=_describe_cause(error))
        if isinstance(error, ssl.SSLError):
            return ProviderUnreachable(message, cause=_describe_cause(error), remedy=_TRUST)
        if proxy is None:
            return ProviderUnreachable(message, cause=_describe_cause(error))
        is_proxy = isinstance(error, ProxyRefused)
        cause = _describe_error(error) if is_proxy else f"through the proxy {proxy.authority}, {_describe_cause(error)}"
        return ProviderUnreachable(message, cause=cause, remedy=_CHECK_PROXY)

    async def _ask(
        self, route: HttpRoute, request: bytes, connect: float, *, repeats: bool
    ) -> tuple[HttpReply, HttpConnection]:
        """Send a request and wait for the response headers."""
        idle = self._take_idle_connection(route.to)
        if idle is not None:
            try:
                return await self._ask_on(idle, request)
            except ConnectionError:
                if idle.has_answered or not repeats:
                    raise
        return await self._ask_on(await self._connect(route, connect), request)

    async def _ask_on(self, connection: HttpConnection, request: bytes) -> tuple[HttpReply, HttpConnection]:
        try:
            return await connection.ask(request), connection
        except BaseException:
            connection.abort()
            raise

    async def _connect(self, route: HttpRoute, seconds: float) -> HttpConnection:
        try:
            async with asyncio.timeout(seconds):
                connection = await dial(route, self._load_certificates, self._resolve)
        except TimeoutError as error:
            raise TimeoutError(f"no connection within {seconds:g} s") from error
        self._connections.add(connection)
        connection.lost.add_done_callback(lambda _: self._connections.discard(connection))
        return connection

    def _load_certificates(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = load_trusted_certificates(ssl.get_default_verify_paths())
        return self._tls

    def _find_route(self, to: HttpAddress) -> HttpRoute:
        if to not in self._routes:
            self._routes[to] = HttpRoute(to) if self._direct else find_route(to)
        return self._routes[to]

    def _take_idle_connection(self, to: HttpAddress) -> HttpConnection | None:
        """Return the most recently used connection to a server, if one is still good."""
        since = asyncio.get_running_loop().time() - KEPT_SECONDS
        idle = self._idle.get(to, [])
        while idle:
            used_at, connection = idle.pop()
            if used_at > since and connection.is_clean:
                return connection
            connection.abort()
        return None

    def _release(self, to: HttpAddress, connection: HttpConnection) -> None:
        if connection.is_complete:
            self._idle.setdefault(to, []).append((asyncio.get_running_loop().time(), connection))
        else:
            connection.abort()


def _describe_cause(error: Exception) -> str:
    """Return why no reply came, as a clause for people."""
    match error:
        case socket.gaierror():
            return "its host name can't be resolved"
        case ConnectionRefusedError(strerror=str()):
            return "the connection was refused"
        case TimeoutError():
            return str(error) or "no reply in time"
        case ssl.SSLCertVerificationError():
            return "its TLS certificate isn't trusted"
        case OSError(strerror=str(reason)):
            return reason[:1].lower() + reason[1:]
        case _:
            return _describe_error(error)


def _strip_query(url: str) -> str:
    """Return a URL for a message: queries are long, and may contain secrets."""
    return url.partition("?")[0]


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
