"""An HTTP receiver for pushed updates: each is acknowledged when the next one is requested."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import formatdate
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from talaria.core.errors import Unreachable
from talaria.http_client.connection import decode_content

T = TypeVar("T")
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_HEADER_TIMEOUT = timedelta(seconds=10)
_MAX_HEAD = 64 * 1024  # bytes without progress of the parser: headers, trailers, chunk extensions
_CLOSE_SECONDS = 1.0
_ACCEPT_STEPS = 5

# Of uvicorn: invalid HTTP is answered as such and not worth a warning, an error is a bug of ours.
_server_log = logging.getLogger(f"{__name__}.server")
_server_log.setLevel(logging.ERROR)


class BodyTooLarge(Exception):
    """Error of a body with more bytes than are accepted."""


class BodyBroken(Exception):
    """Error of a body that ended too early, or whose encoding is wrong."""


class PushResponse(Struct, frozen=True):
    """The answer to a post."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


class PushRequest:
    """A post whose headers have arrived; their names are in lower case. ``name`` is the last part of the path."""

    def __init__(self, scope: MutableMapping[str, Any], receive: _Receive, largest: int) -> None:
        self.headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self.headers[name.decode("latin-1")] = value.decode(errors="surrogateescape")
        self.name = unquote(scope["raw_path"].decode("latin-1").rpartition("/")[2])
        self.remote: str = (scope.get("client") or ("",))[0]
        self._receive = receive
        self.largest = largest

    async def read(self) -> bytes:
        """Return the body, decompressed; raises `BodyTooLarge` or `BodyBroken`."""
        body, more = bytearray(), True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise BodyBroken("the sender closed the connection")
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.largest:
                raise BodyTooLarge
        try:
            decoded = decode_content(bytes(body), self.headers.get("content-encoding", ""), self.largest)
        except ValueError as error:
            raise BodyBroken(str(error)) from error
        if len(decoded) > self.largest:
            raise BodyTooLarge
        return decoded


PushHandler = Callable[[PushRequest], Awaitable[PushResponse]]
GetHandler = Callable[[str, Mapping[str, str]], PushResponse]  # from the path below that of the posts, and the query


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
        self, path: str, receive: PushHandler, *, largest: int, answer_get: GetHandler | None = None
    ) -> AsyncIterator[None]:
        """Listen, and let ``receive`` answer posts to a path; raises `Unreachable` if that is impossible.

        A path that ends in ``/{…}`` matches any name there. ``answer_get`` answers GET there and below.
        """
        application = partial(_answer, path=path, handler=receive, largest=largest, answer_get=answer_get)
        config = uvicorn.Config(
            application, interface="asgi3", ws="none", lifespan="off", log_config=None, access_log=False
        )
        state, seconds = ServerState(), self._header_timeout.total_seconds()
        listener = self._open_listener()
        loop = asyncio.get_running_loop()
        listening: asyncio.Server | None = None
        try:
            listening = await loop.create_server(lambda: _TimedProtocol(config, state, {}, seconds), sock=listener)
            yield
        finally:
            self._is_closing = True
            while not self._queue.empty():
                self._queue.get_nowait().acknowledge(accepted=False)
            # Accept nothing more, and let connections being accepted arrive: closed in between, such a connection would
            # be lost, and its sender would wait for an answer in vain.
            loop.remove_reader(listener)
            for _ in range(_ACCEPT_STEPS):
                await asyncio.sleep(0)
            if listening is not None:
                listening.close()
            await _end_connections(state)
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
            async with asyncio.timeout(timeout_after.total_seconds() if timeout_after is not None else None):
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


class _TimedProtocol(HttpToolsProtocol):
    """A connection that is closed if headers are too large or late, or an answered body is late."""

    def __init__(self, config: uvicorn.Config, state: ServerState, app_state: dict[str, Any], seconds: float) -> None:
        super().__init__(config, state, app_state)
        self.logger = _server_log
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes since the parser last made progress
        self._in_request = False  # its headers are here, and it is not answered
        self._is_sent = True  # the last request, with its body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_request and self._timer is None:
            self._start_timer()
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > _MAX_HEAD:
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._in_request, self._is_sent = True, False
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed, self._is_sent = 0, True
        if not self._in_request:
            self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and not self.transport.is_closing():
            self._in_request = False
            if not self._is_sent:
                self._start_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self._seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _answer(
    scope: MutableMapping[str, Any],
    receive: _Receive,
    send: _Send,
    *,
    path: str,
    handler: PushHandler,
    largest: int,
    answer_get: GetHandler | None,
) -> None:
    """Answer a request: the ASGI application."""
    given = scope["raw_path"].decode("latin-1")
    if scope["method"] == "GET" and answer_get is not None and f"{given}/".startswith(f"{path.rstrip('/')}/"):
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        response = answer_get(given.removeprefix(path.rstrip("/")), query)
    elif not _matches(path, given):
        response = PushResponse(404, b"404: Not Found")
    elif scope["method"] != "POST":
        response = PushResponse(405, b"405: Method Not Allowed", headers={"allow": "POST"})
    else:
        response = await handler(PushRequest(scope, receive, largest))
    headers = {
        "content-type": response.content_type,
        "content-length": str(len(response.body)),
        "date": formatdate(usegmt=True),
        **response.headers,
    }
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": encoded})
    await send({"type": "http.response.body", "body": response.body})


def _matches(pattern: str, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    pattern_folder, _, pattern_name = pattern.rpartition("/")
    return path == pattern or (pattern_name.startswith("{") and folder == pattern_folder and bool(name))


async def _end_connections(state: ServerState) -> None:
    """Let requests that are being answered end, and close the other connections."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        _, late = await asyncio.wait(state.tasks, timeout=_CLOSE_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
    for connection in list(state.connections):
        connection.transport.close()
