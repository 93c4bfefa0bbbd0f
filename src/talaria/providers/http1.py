"""One HTTP/1.1 connection: requests go out, and each reply is taken apart as it comes in."""

import asyncio
import ssl
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD = 64 * 1024  # bytes of anything but the body, in a row
READ_AHEAD = 256 * 1024  # bytes of the body that may wait before the sender has to


class NotHttp(Exception):
    """The other side does not keep to the protocol."""


class Reply:
    """A reply under way; the parser calls the ``on_`` methods. Names of headers are in lower case."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_complete = False
        self.keeps_alive = False
        self.has_begun = False
        self.pieces: list[bytes] = []
        self.waiting = 0
        self._between = 0
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take what came in, or raise `NotHttp`."""
        assert self._parser is not None
        self.has_begun = True
        self._between += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as error:
            raise NotHttp("the server changed the protocol without being asked") from error
        except HttpParserError as error:
            if not self.is_complete:
                raise NotHttp(str(error) or type(error).__name__) from error
            self.keeps_alive = False
        if self.is_complete:
            self._parser = None  # the two hold on to each other
        elif self._between > MAX_HEAD:
            raise NotHttp(f"more than {MAX_HEAD} bytes of headers")

    def end(self) -> bool:
        """Take the end of the connection; return whether that is also the end of the reply, and nothing is missing."""
        measured = "content-length" in self.headers or "transfer-encoding" in self.headers
        self.is_complete = self.is_complete or (self.has_head and not measured)
        return self.is_complete

    def take(self) -> bytes:
        """Return what has come of the body since the last time."""
        pieces, self.pieces, self.waiting = self.pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def on_message_begin(self) -> None:
        """Notice what follows the end: whoever sends more than was asked for is not asked again."""
        self.keeps_alive = self.keeps_alive and not self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are left out, and repeated ones are joined."""
        if self.has_head:
            return
        key, text = name.decode("latin-1").lower(), value.decode(errors="surrogateescape")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Keep the status, unless this is only word that the reply is to come."""
        if self.is_complete or self._parser is None:
            return
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()
        self.has_head = self.status >= 200
        if not self.has_head:
            self.headers = {}

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if not self.is_complete:
            self._between = 0
            self.waiting += len(data)
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        """Notice the end."""
        self.is_complete = self.is_complete or self.has_head


class Connection(asyncio.Protocol):
    """A connection that carries one exchange after the other, each begun by `ask`.

    A slow reader holds the sender up: nothing is read ahead beyond `READ_AHEAD`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reply = Reply()
        self._trouble: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_clean(self) -> bool:
        """Whether the exchange is over, to the byte and in both directions, and another may follow."""
        transport, reply = self._transport, self._reply
        if transport is None or transport.is_closing() or self._trouble is not None:
            return False
        return reply.is_complete and reply.keeps_alive and transport.get_write_buffer_size() == 0

    @property
    def has_answered(self) -> bool:
        """Whether anything came back for the last request."""
        return self._reply.has_begun

    def ask(self, request: bytes) -> None:
        """Send a request whole; the reply before is forgotten."""
        assert self._transport is not None
        self._reply = Reply()
        self._transport.resume_reading()
        self._transport.write(request)

    async def head(self) -> Reply:
        """Return the reply once its status and headers are here, or raise `OSError` or `NotHttp`."""
        while not self._reply.has_head:
            await self._more()
        return self._reply

    async def readany(self) -> bytes:
        """Return what has come of the body, at least a byte, or nothing at its end."""
        reply = self._reply
        while not reply.pieces:
            if reply.is_complete:
                return b""
            await self._more()
        if reply.waiting > READ_AHEAD and self._transport is not None:
            self._transport.resume_reading()
        return reply.take()

    def at_eof(self) -> bool:
        """Return whether the body has come to its end, and all of it was read."""
        return self._reply.is_complete and not self._reply.pieces

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Go on in TLS, with ``host`` at the far end of the tunnel that was asked for."""
        assert self._transport is not None
        secured = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        assert secured is not None
        self._transport = secured

    def abort(self) -> None:
        """Close it at once."""
        self._fail(ConnectionAbortedError("the connection was closed on this side"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the reply; what nobody asked for ends the connection."""
        if self._reply.is_complete:
            self._fail(NotHttp("the server spoke unasked"))
            return
        try:
            self._reply.feed(data)
        except NotHttp as error:
            self._fail(error)
        if self._reply.waiting > READ_AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the reply, or say what went wrong with it."""
        if self._trouble is None and (exc is not None or not self._reply.end()):
            self._trouble = exc or ConnectionResetError("the server closed the connection")
        self._transport = None
        self._wake()
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail(self, trouble: Exception) -> None:
        self._trouble = self._trouble or trouble
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    async def _more(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
