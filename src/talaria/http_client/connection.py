"""HTTP/1.1: addresses, requests and forms, encoded bodies, and a connection that parses responses as they arrive."""

import asyncio
import base64
import re
import select
import ssl
import zlib
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from talaria.core.ids import new_id

_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')
_GZIP_OR_ZLIB, _RAW_DEFLATE = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_UNSUPPORTED = {"br", "zstd"}
MAX_HEAD = 64 * 1024  # bytes of anything but the body, in a row
READ_AHEAD = 256 * 1024  # bytes of the body that may wait before the sender has to
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PORTS = {"http": 80, "https": 443}
_IN_A_PATH = "/%:@!$&'()*+,;=~?"
_OWN_HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "talaria"}


class Timeouts(Struct, frozen=True):
    """Time-outs: for a connection, for the first byte of the reply, and within a reply."""

    connect: timedelta = timedelta(seconds=10)
    first_byte: timedelta = timedelta(seconds=120)
    silence: timedelta = timedelta(seconds=60)


class HttpAddress(Struct, frozen=True):
    """A server; ``login`` is the user part of its URL, as the value of a header."""

    scheme: str
    host: str
    port: int
    login: str = ""

    @property
    def is_secure(self) -> bool:
        """Return whether it uses TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Return host and port, as used for a tunnel."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """Return the value of the header ``Host``: without the default port."""
        return self.authority.removesuffix(f":{_PORTS[self.scheme]}")


class HttpRoute(Struct, frozen=True):
    """A server and, optionally, a proxy."""

    to: HttpAddress
    proxy: HttpAddress | None = None

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return the bytes of a request, or raise `ValueError` for an invalid header."""
        given = {name.lower() for name in headers}
        own = {name: value for name, value in self._make_headers().items() if name.lower() not in given}
        length = {} if body is None else {"Content-Length": str(len(body))}
        target = f"http://{self.to.name}{path}" if self.proxy and not self.to.is_secure else path
        return make_head(f"{method} {target} HTTP/1.1", {**own, **headers, **length}) + (body or b"")

    def _make_headers(self) -> dict[str, str]:
        login = {"Authorization": self.to.login} if self.to.login else {}
        sees_us = self.proxy is not None and self.proxy.login and not self.to.is_secure
        proxy_login = {"Proxy-Authorization": self.proxy.login} if self.proxy and sees_us else {}
        return {"Host": self.to.name, **_OWN_HEADERS, **login, **proxy_login}


@lru_cache(maxsize=256)
def read_url(url: str) -> tuple[HttpAddress, str]:
    """Return the server and the path of a URL, or raise `ValueError`."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("only http:// and https:// URLs are supported")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HttpAddress(parts.scheme, host, port, _make_login(parts)), quote(path, safe=_IN_A_PATH)


def make_head(first_line: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request, or raise `ValueError` for an invalid header."""
    lines = [first_line, *(f"{name}: {value}" for name, value in headers.items())]
    if any(not line.isprintable() and not {"\r", "\n", "\0"}.isdisjoint(line) for line in lines):
        raise ValueError("a header contains a line break")
    return "\r\n".join([*lines, "", ""]).encode(errors="surrogateescape")


class Form(Struct, frozen=True):
    """The body of a request, and its content type."""

    content_type: str
    body: bytes


class FormFile(Struct, frozen=True):
    """A file as a field of a form."""

    field: str
    name: str
    content: bytes
    media_type: str


def encode_form(fields: Mapping[str, str], *files: FormFile) -> Form:
    """Return a form with these fields and files."""
    border = f"talaria-{new_id()}-{new_id()}"
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    for file in files:
        head = (
            f'--{border}\r\nContent-Disposition: form-data; name="{file.field}"; '
            f'filename="{_UNSAFE.sub("_", file.name)}"\r\nContent-Type: {_UNSAFE.sub("_", file.media_type)}\r\n\r\n'
        )
        parts += [head.encode(), file.content, b"\r\n"]
    return Form(f"multipart/form-data; boundary={border}", b"".join([*parts, f"--{border}--\r\n".encode()]))


def decode_content(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its content encoding, cut after ``limit`` + 1 bytes; raises `ValueError` if corrupt.

    ``encoding`` is the value of the header; unknown names leave the body unchanged.
    """
    name = encoding.strip().lower()
    if name in _UNSUPPORTED:
        raise ValueError(f"the content encoding {name} is not supported")
    if name not in {"gzip", "deflate"} or not body:
        return body[: limit + 1]
    is_raw = name == "deflate" and body[0] & 0x0F != zlib.DEFLATED
    try:
        return _inflate(body, _RAW_DEFLATE if is_raw else _GZIP_OR_ZLIB, limit + 1, must_end=name == "deflate")
    except zlib.error as error:
        raise ValueError(f"the body is not {name}: {error}") from error


class NotHttp(Exception):
    """The server violates the protocol."""


class HttpReply:
    """A response in progress; the parser calls the ``on_`` methods. Header names are in lower case."""

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
        """Parse received data, or raise `NotHttp`."""
        assert self._parser is not None
        self.has_begun = True
        self._between += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as error:
            raise NotHttp("the server switched protocols without being asked") from error
        except HttpParserError as error:
            if not self.is_complete:
                raise NotHttp(str(error) or type(error).__name__) from error
            self.keeps_alive = False
        if self.is_complete:
            self._parser = None  # the two reference each other
        elif self._between > MAX_HEAD:
            raise NotHttp(f"more than {MAX_HEAD} bytes of headers")

    def end(self) -> bool:
        """Handle the end of the connection; return whether the response is complete."""
        measured = "content-length" in self.headers or "transfer-encoding" in self.headers
        self.is_complete = self.is_complete or (self.has_head and not measured)
        return self.is_complete

    def take(self) -> bytes:
        """Return new data of the body."""
        pieces, self.pieces, self.waiting = self.pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def on_message_begin(self) -> None:
        """Detect data after the end: such a connection is not reused."""
        self.keeps_alive = self.keeps_alive and not self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are dropped, and repeated ones are joined."""
        if self.has_head:
            return
        key, text = name.decode("latin-1").lower(), value.decode(errors="surrogateescape")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Store the status, unless it is an interim response."""
        if self.is_complete or self._parser is None:
            return
        self.status = self._parser.get_status_code()
        self.keeps_alive = self._parser.should_keep_alive()
        self.has_head = self.status >= 200
        if not self.has_head:
            self.headers = {}

    def on_body(self, data: bytes) -> None:
        """Store a piece of the body."""
        if not self.is_complete:
            self._between = 0
            self.waiting += len(data)
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        """Record the end."""
        self.is_complete = self.is_complete or self.has_head


class HttpConnection(asyncio.Protocol):
    """A connection for one exchange after the other, each started by `ask`.

    A slow reader slows down the sender: at most `READ_AHEAD` is read ahead.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reply = HttpReply()
        self._trouble: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_complete(self) -> bool:
        """Return whether the exchange is complete in both directions, and the server allows another."""
        transport, reply = self._transport, self._reply
        if transport is None or transport.is_closing() or self._trouble is not None:
            return False
        return reply.is_complete and reply.keeps_alive and not transport.get_write_buffer_size()

    @property
    def is_clean(self) -> bool:
        """Return whether another exchange may begin now.

        It may not if something has arrived that the loop hasn't seen yet, for example the end of the connection.
        """
        transport = self._transport
        if transport is None or not self.is_complete:
            return False
        arrived = select.poll()
        arrived.register(transport.get_extra_info("socket"), select.POLLIN)
        return not arrived.poll(0)

    @property
    def has_answered(self) -> bool:
        """Return whether anything came back for the last request."""
        return self._reply.has_begun

    async def ask(self, request: bytes) -> HttpReply:
        """Send a whole request, and return the response once its headers are here; the previous one is dropped.

        Raises `OSError` or `NotHttp`.
        """
        assert self._transport is not None
        self._reply = HttpReply()
        self._transport.resume_reading()
        self._transport.write(request)
        while not self._reply.has_head:
            await self._wait_for_data()
        return self._reply

    async def readany(self) -> bytes:
        """Return new data of the body, at least a byte, or nothing at its end."""
        reply = self._reply
        while not reply.pieces:
            if reply.is_complete:
                return b""
            await self._wait_for_data()
        if reply.waiting > READ_AHEAD and self._transport is not None:
            self._transport.resume_reading()
        return reply.take()

    def at_eof(self) -> bool:
        """Return whether the body is complete and was read."""
        return self._reply.is_complete and not self._reply.pieces

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Continue in TLS, with ``host`` at the far end of the requested tunnel."""
        assert self._transport is not None
        secured = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        assert secured is not None
        self._transport = secured

    def abort(self) -> None:
        """Close it at once."""
        self._fail(ConnectionAbortedError("the connection was closed on our side"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse received data; unrequested data ends the connection."""
        if self._reply.is_complete:
            self._fail(NotHttp("the server sent data before a request"))
            return
        try:
            self._reply.feed(data)
        except NotHttp as error:
            self._fail(error)
        if self._reply.waiting > READ_AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, or record the error."""
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

    async def _wait_for_data(self) -> None:
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


def _inflate(body: bytes, window: int, most: int, *, must_end: bool) -> bytes:
    parts, size = [], 0
    while body and size < most:
        stream = zlib.decompressobj(window)
        try:
            parts.append(stream.decompress(body, most - size))
        except zlib.error:
            if not parts:
                raise
            break  # padding after the last member
        size += len(parts[-1])
        if must_end and not stream.eof and size < most:
            raise zlib.error("it ends too early")
        body = stream.unused_data  # a gzip body may have several members
    return b"".join(parts)


def _make_login(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(words.encode()).decode()}"
