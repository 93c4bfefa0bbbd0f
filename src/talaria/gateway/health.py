"""How a gateway is doing, over HTTP on loopback: whether it lives, whether it can work, and its figures."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar, cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import TalariaError
from talaria.gateway.gateway import Gateway
from talaria.gateway.metrics import count_waiting, metrics
from talaria.gateway.presence import count_work
from talaria.sessions.figures import CONTENT_TYPE, Pulse
from talaria.sessions.homes import GATEWAY
from talaria.sessions.presence import encode_worker

T = TypeVar("T")
_HERE = "127.0.0.1"
_NAMES = {_HERE, "localhost", ""}
_STORE_SECONDS = 1.0
_VISIT_SECONDS = 5.0
_MOST_VISITORS = 32
_LONGEST_REQUEST = 8 * 1024

log = logging.getLogger(__name__)


class Answer(Struct, frozen=True):
    """What a visitor is told."""

    status: HTTPStatus
    body: str
    content_type: str = "application/json"

    def encoded(self) -> bytes:
        """Return it as it goes over the wire, after which the connection is closed."""
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\ncontent-type: {self.content_type}\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n"
        )
        allow = "allow: GET\r\n" if self.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        return f"{head}{allow}\r\n".encode() + body


class Readiness(Struct, frozen=True):
    """Whether messages are taken and answered, and if not, why."""

    ready: bool
    reasons: tuple[str, ...]


class Health:
    """Answers for a gateway; questions that wait for the store are tasks of ``jobs``.

    ``mask`` hides secrets in what networks said.
    """

    def __init__(self, gateway: Gateway, store: Store, jobs: asyncio.TaskGroup, mask: Callable[[str], str]) -> None:
        self._gateway = gateway
        self._store = store
        self._jobs = jobs
        self._mask = mask
        self._pulse = Pulse()
        self._visitors: set[_Visitor] = set()

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[None]:
        """Serve on this port; on a free one if it is 0 or cannot be had, which the gateway's status then says."""
        server = await self._listen(port)
        self._gateway.address = f"http://{_HERE}:{server.sockets[0].getsockname()[1]}"
        self._pulse.start()
        try:
            yield
        finally:
            self._pulse.stop()
            server.close()
            for visitor in list(self._visitors):
                visitor.leave()

    def answer(self, path: str) -> Answer | Coroutine[Any, Any, Answer]:
        """Return what to say, or what will find it out."""
        match path:
            case "/health":
                return _json(HTTPStatus.OK, {"status": "ok", "uptime_seconds": self._uptime()})
            case "/ready":
                return self._ready()
            case "/metrics":
                return self._metrics()
            case "/status":
                return self._status()
        return _problem(HTTPStatus.NOT_FOUND, "There are /health, /ready, /metrics and /status.")

    async def readiness(self) -> Readiness:
        """Ask whether a message that comes now would be answered. A network that another worker holds counts."""
        reasons = []
        if self._gateway.stopping:
            reasons.append("The gateway is about to end.")
        networks = [line.network.status for line in self._gateway.lines]
        if not any(one.state in {"connected", "elsewhere"} for one in networks):
            reasons += [self._mask(f"{one.name}: {one.state}. {one.error}".rstrip()) for one in networks]
        if trouble := self._gateway.presence.trouble:
            reasons.append(self._mask(trouble))
        elif await self._ask(lambda tx: [tx.leases.get(GATEWAY)]) is None:
            reasons.append(f"The store does not answer within {_STORE_SECONDS:.0f} s.")
        return Readiness(not reasons, tuple(reasons))

    def begin(self, visitor: "_Visitor") -> bool:
        """Let a visitor in, if there are not too many."""
        if len(self._visitors) >= _MOST_VISITORS:
            return False
        self._visitors.add(visitor)
        return True

    def end(self, visitor: "_Visitor") -> None:
        """Forget a visitor."""
        self._visitors.discard(visitor)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that takes no longer than the store is waited for."""
        self._jobs.create_task(work)

    async def _listen(self, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(lambda: _Visitor(self), _HERE, port)
        except OSError as error:
            if not port:
                raise
            trouble = (
                f"The port {port} of `gateway.port` cannot be had ({error.strerror or error}); health and metrics are"
                " on another."
            )
            log.warning("%s", trouble)
            self._gateway.troubles["port"] = trouble
            return await loop.create_server(lambda: _Visitor(self), _HERE, 0)

    async def _ready(self) -> Answer:
        readiness = await self.readiness()
        return _json(HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE, readiness)

    async def _metrics(self) -> Answer:
        waiting = await self._ask(count_waiting)
        return Answer(HTTPStatus.OK, metrics(self._gateway, self._pulse, waiting), CONTENT_TYPE)

    async def _status(self) -> Answer:
        """Say what `talaria gateway status` shows, also when it cannot be written into the store."""
        status, counts = self._gateway.status(), await self._ask(count_work)
        waiting, undelivered = counts or (0, 0)
        told = structs.replace(status, waiting=waiting, undelivered=undelivered)
        return Answer(HTTPStatus.OK, encode_worker(told) + "\n")

    async def _ask(self, work: Callable[[Transaction], T]) -> T | None:
        """Return what the store says; ``None`` when it does not in time."""
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                return await self._store.read(work)
        except (TalariaError, TimeoutError) as error:
            log.warning("the store did not answer: %s", str(error) or "it takes too long")
            return None

    def _uptime(self) -> int:
        return int((datetime.now(UTC) - self._gateway.started).total_seconds())


class _Visitor(asyncio.Protocol):
    """One connection with one question; the parser calls the ``on_`` methods."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._parser = HttpRequestParser(self)
        self._received = 0
        self._url = b""
        self._host = b""
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_VISIT_SECONDS, self.leave)
        if not self._health.begin(self):
            self._say(_problem(HTTPStatus.SERVICE_UNAVAILABLE, "Too many ask at once."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._health.end(self)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._is_answered:
            return
        if self._received > _LONGEST_REQUEST:
            self._say(_problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long."))
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # a wish that may be left unheard: the question was answered as it is
            return
        except HttpParserError:
            self._say(_problem(HTTPStatus.BAD_REQUEST, "This is not HTTP."))

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"host":
            self._host = value

    def on_headers_complete(self) -> None:
        # A page in a browser can reach loopback under a name of its own; it then asks for that name.
        if self._host.decode("latin-1").partition(":")[0] not in _NAMES:
            self._say(_problem(HTTPStatus.FORBIDDEN, "Ask for 127.0.0.1 or localhost."))
        elif self._parser.get_method() != b"GET":
            self._say(_problem(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is understood."))
        else:
            found = self._health.answer(self._url.decode("latin-1").partition("?")[0])
            if isinstance(found, Answer):
                self._say(found)
            else:
                self._is_answered = True
                self._health.later(self._find_out(found))

    def leave(self) -> None:
        self._transport.abort()

    async def _find_out(self, found: Coroutine[Any, Any, Answer]) -> None:
        self._say(await found)

    def _say(self, answer: Answer) -> None:
        self._is_answered = True
        if not self._transport.is_closing():
            self._transport.write(answer.encoded())
            self._transport.close()


def _json(status: HTTPStatus, value: object) -> Answer:
    return Answer(status, msgspec.json.encode(value).decode() + "\n")


def _problem(status: HTTPStatus, sentence: str) -> Answer:
    return _json(status, {"error": sentence})
