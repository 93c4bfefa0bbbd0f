"""Status server: health, readiness, metrics and status of a gateway, over HTTP on loopback."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar, cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import TalariaError
from talaria.gateway.supervisor import GatewaySupervisor, count_pending
from talaria.observability.prometheus import CONTENT_TYPE, LoopLag, label, render_family, render_metric
from talaria.observability.shutdown_report import measure_memory
from talaria.runtime.workers import encode_worker
from talaria.sessions.chat_directory import GATEWAY


def count_outbox(tx: Transaction) -> Mapping[str, int]:
    """Return the number of undelivered replies by network."""
    return Counter(item.address.platform for item in tx.outbox.find() if item.state != "failed")


def render_metrics(gateway: GatewaySupervisor, loop_lag: LoopLag, waiting: Mapping[str, int] | None) -> str:
    """Return all metrics; ``waiting`` is `count_outbox`, or ``None`` if the store does not answer."""
    status = gateway.status()
    store_up = waiting is not None and not gateway.presence.trouble
    up = [(label(model=one.model), int(not one.error)) for one in gateway.models.states]
    failures = [(label(model=one.model), one.failures) for one in gateway.models.states]
    networks = [(line.network.status, line.delivery.status) for line in gateway.lines]
    text = [
        render_family("talaria_build_info", "gauge", "The running version.", [(label(version=status.version), 1)]),
        render_metric("process_start_time_seconds", "gauge", "Start time of the process.", status.started.timestamp()),
        render_metric("process_resident_memory_bytes", "gauge", "Memory in use.", measure_memory()),
        render_metric("talaria_event_loop_lag_seconds", "gauge", "Current delay of the event loop.", loop_lag.last),
        render_metric(
            "talaria_event_loop_lag_max_seconds",
            "gauge",
            "Largest delay of the event loop within a minute.",
            loop_lag.worst,
        ),
        render_metric("talaria_sessions_open", "gauge", "Open sessions.", status.open_sessions),
        render_metric("talaria_turns_running", "gauge", "Running turns.", status.turns),
        render_metric("talaria_store_up", "gauge", "Whether the store answers and can be written to.", int(store_up)),
        render_family("talaria_model_up", "gauge", "Whether the model answered its last call.", up),
        render_family("talaria_model_failures_total", "counter", "Calls that the model didn't answer.", failures),
    ]
    for name, kind, about, values in (
        (
            "network_up",
            "gauge",
            "Whether this process is connected.",
            [int(n.state == "connected") for n, _ in networks],
        ),
        ("received_total", "counter", "Messages received.", [n.received for n, _ in networks]),
        ("delivered_total", "counter", "Replies sent.", [d.sent for _, d in networks]),
        ("retried_total", "counter", "Deliveries postponed.", [d.retried for _, d in networks]),
        ("failed_total", "counter", "Replies given up.", [d.failed for _, d in networks]),
        ("repeated_total", "counter", "Replies that may have been sent twice.", [d.repeated for _, d in networks]),
    ):
        labels = (label(network=network.name) for network, _ in networks)
        text.append(render_family(f"talaria_{name}", kind, about, zip(labels, values, strict=True)))
    if waiting is not None:
        left = [(label(network=network.name), waiting.get(network.name, 0)) for network, _ in networks]
        text.append(render_family("talaria_outbox_waiting", "gauge", "Replies waiting to be sent.", left))
    return "".join(text)


T = TypeVar("T")
_HOST = "127.0.0.1"
_ALLOWED_HOSTS = {_HOST, "localhost", ""}
_STORE_SECONDS = 1.0
_CONNECTION_SECONDS = 5.0
_MAX_CONNECTIONS = 32
_MAX_REQUEST = 8 * 1024
log = logging.getLogger(__name__)


class StatusResponse(Struct, frozen=True):
    """HTTP response of the status server."""

    status: HTTPStatus
    body: str
    content_type: str = "application/json"

    def encode(self) -> bytes:
        """Return the response as bytes; the connection is closed after it."""
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\ncontent-type: {self.content_type}\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n"
        )
        allow = "allow: GET\r\n" if self.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        return f"{head}{allow}\r\n".encode() + body


class Readiness(Struct, frozen=True):
    """Readiness of the gateway to receive and answer messages, with the reasons if it is not."""

    ready: bool
    reasons: tuple[str, ...]


class StatusServer:
    """HTTP server for the state of a gateway; requests that read the store run as tasks of ``jobs``.

    ``mask`` hides secrets in the error texts of networks.
    """

    def __init__(
        self, gateway: GatewaySupervisor, store: Store, jobs: asyncio.TaskGroup, mask: Callable[[str], str]
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._jobs = jobs
        self._mask = mask
        self._loop_lag = LoopLag()
        self._connections: set[_Connection] = set()

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncIterator[None]:
        """Serve on this port within the block; on a free one if it is 0 or unavailable.

        An unavailable port is reported in the gateway's status.
        """
        server = await self._listen(port)
        self._gateway.address = f"http://{_HOST}:{server.sockets[0].getsockname()[1]}"
        self._loop_lag.start()
        try:
            yield
        finally:
            self._loop_lag.stop()
            server.close()
            for connection in list(self._connections):
                connection.leave()

    def answer(self, path: str) -> StatusResponse | Coroutine[Any, Any, StatusResponse]:
        """Return the response for a path, or a coroutine that returns it."""
        match path:
            case "/health":
                return _make_json(HTTPStatus.OK, {"status": "ok", "uptime_seconds": self._compute_uptime()})
            case "/ready":
                return self._get_ready()
            case "/metrics":
                return self._get_metrics()
            case "/status":
                return self._get_status()
        return _make_error(HTTPStatus.NOT_FOUND, "Not found. Available: /health, /ready, /metrics and /status.")

    async def check_readiness(self) -> Readiness:
        """Return whether a message that arrives now would be answered.

        A network that another worker receives counts as available.
        """
        reasons = []
        if self._gateway.stopping:
            reasons.append("The gateway is shutting down.")
        networks = [line.network.status for line in self._gateway.lines]
        if not any(one.state in {"connected", "elsewhere"} for one in networks):
            reasons += [self._mask(f"{one.name}: {one.state}. {one.error}".rstrip()) for one in networks]
        if trouble := self._gateway.presence.trouble:
            reasons.append(self._mask(trouble))
        elif await self._read_store(lambda tx: [tx.leases.get(GATEWAY)]) is None:
            reasons.append(f"The store didn't answer within {_STORE_SECONDS:.0f} s.")
        return Readiness(not reasons, tuple(reasons))

    def begin(self, connection: "_Connection") -> bool:
        """Register a connection; ``False`` if there are too many."""
        if len(self._connections) >= _MAX_CONNECTIONS:
            return False
        self._connections.add(connection)
        return True

    def end(self, connection: "_Connection") -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that takes no longer than the time limit for the store."""
        self._jobs.create_task(work)

    async def _listen(self, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(lambda: _Connection(self), _HOST, port)
        except OSError as error:
            if not port:
                raise
            trouble = (
                f"Port {port} (setting `gateway.port`) isn't available: {error.strerror or error}. Health and metrics"
                " use another port."
            )
            log.warning("%s", trouble)
            self._gateway.problems["port"] = trouble
            return await loop.create_server(lambda: _Connection(self), _HOST, 0)

    async def _get_ready(self) -> StatusResponse:
        readiness = await self.check_readiness()
        return _make_json(HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE, readiness)

    async def _get_metrics(self) -> StatusResponse:
        waiting = await self._read_store(count_outbox)
        return StatusResponse(HTTPStatus.OK, render_metrics(self._gateway, self._loop_lag, waiting), CONTENT_TYPE)

    async def _get_status(self) -> StatusResponse:
        """Return what `talaria gateway status` shows, even if the store cannot be written."""
        status, counts = self._gateway.status(), await self._read_store(count_pending)
        waiting, undelivered = counts or (0, 0)
        reported = structs.replace(status, waiting=waiting, undelivered=undelivered)
        return StatusResponse(HTTPStatus.OK, encode_worker(reported) + "\n")

    async def _read_store(self, work: Callable[[Transaction], T]) -> T | None:
        """Return the result of a read from the store; ``None`` after an error or timeout."""
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                return await self._store.read(work)
        except (TalariaError, TimeoutError) as error:
            log.warning("the store didn't answer: %s", str(error) or "it took too long")
            return None

    def _compute_uptime(self) -> int:
        return int((datetime.now(UTC) - self._gateway.started).total_seconds())


class _Connection(asyncio.Protocol):
    """Connection for one request; the parser calls the ``on_`` methods."""

    def __init__(self, health: StatusServer) -> None:
        self._server = health
        self._parser = HttpRequestParser(self)
        self._received = 0
        self._url = b""
        self._host = b""
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_CONNECTION_SECONDS, self.leave)
        if not self._server.begin(self):
            self._respond(_make_error(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests at once."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._server.end(self)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._is_answered:
            return
        if self._received > _MAX_REQUEST:
            self._respond(_make_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long."))
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # an upgrade request may be ignored: the request was answered normally
            return
        except HttpParserError:
            self._respond(_make_error(HTTPStatus.BAD_REQUEST, "This is not HTTP."))

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"host":
            self._host = value

    def on_headers_complete(self) -> None:
        # A web page can reach loopback through a host name of its own, which is then in the Host header.
        if self._host.decode("latin-1").partition(":")[0] not in _ALLOWED_HOSTS:
            self._respond(_make_error(HTTPStatus.FORBIDDEN, "Unknown host. Use 127.0.0.1 or localhost."))
        elif self._parser.get_method() != b"GET":
            self._respond(_make_error(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is supported."))
        else:
            found = self._server.answer(self._url.decode("latin-1").partition("?")[0])
            if isinstance(found, StatusResponse):
                self._respond(found)
            else:
                self._is_answered = True
                self._server.start_task(self._respond_later(found))

    def leave(self) -> None:
        self._transport.abort()

    async def _respond_later(self, found: Coroutine[Any, Any, StatusResponse]) -> None:
        self._respond(await found)

    def _respond(self, answer: StatusResponse) -> None:
        self._is_answered = True
        if not self._transport.is_closing():
            self._transport.write(answer.encode())
            self._transport.close()


def _make_json(status: HTTPStatus, value: object) -> StatusResponse:
    return StatusResponse(status, msgspec.json.encode(value).decode() + "\n")


def _make_error(status: HTTPStatus, sentence: str) -> StatusResponse:
    return _make_json(status, {"error": sentence})
