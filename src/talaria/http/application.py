"""The ASGI application: processing and metrics around every route, from the host check to the last byte."""

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from time import perf_counter, time
from typing import Any, Protocol

from msgspec import Struct, structs

from talaria.core.aio import run_with
from talaria.core.errors import TalariaError
from talaria.core.ids import new_id
from talaria.http.errors import ClientGone, Problem, ServerStopping, make_server_problem, to_problem
from talaria.http.idempotency import HEADER, MAX_STORED_BYTES, IdempotencyStore, StoredReply
from talaria.http.routing import (
    CallerT,
    OriginPolicy,
    Receive,
    Reply,
    ReplyStream,
    Request,
    RequestLimiter,
    Route,
    Router,
    Scope,
    Send,
)
from talaria.observability.prometheus import LoopLag, label, render_family, render_metric
from talaria.observability.shutdown_report import measure_memory

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestMetrics:
    """Counts requests by route and status, and their duration."""

    def __init__(self) -> None:
        self.pulse = LoopLag()
        self._started = datetime.now(UTC)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Record a finished request; ``path`` is that of the route, empty if there was none."""
        self._requests[path, status] += 1
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    @property
    def uptime(self) -> int:
        """Return the uptime in whole seconds."""
        return int((datetime.now(UTC) - self._started).total_seconds())

    def text(self, version: str, *, running: int, turns: int, agents: int) -> str:
        """Return all metrics, given the ``running`` requests, their ``turns``, and the open agents."""
        samples = [
            (label(route=path or "none", status=str(status)), number)
            for (path, status), number in sorted(self._requests.items())
        ]
        pulse = self.pulse
        return "".join(
            (
                render_family("talaria_build_info", "gauge", "The running version.", [(label(version=version), 1)]),
                render_metric(
                    "process_start_time_seconds", "gauge", "Start time of the process.", self._started.timestamp()
                ),
                render_metric("process_resident_memory_bytes", "gauge", "Memory in use.", measure_memory()),
                render_metric(
                    "talaria_event_loop_lag_seconds", "gauge", "Current delay of the event loop.", pulse.last
                ),
                render_metric(
                    "talaria_event_loop_lag_max_seconds",
                    "gauge",
                    "Largest delay of the event loop within a minute.",
                    pulse.worst,
                ),
                render_metric("talaria_sessions_open", "gauge", "Open sessions.", agents),
                render_metric("talaria_turns_running", "gauge", "Running turns.", turns),
                render_metric("talaria_api_requests_running", "gauge", "Requests in progress.", running),
                render_family("talaria_api_requests_total", "counter", "Completed requests.", samples),
                self._render_durations(),
            )
        )

    def _render_durations(self) -> str:
        name, total, lines = "talaria_api_request_seconds", 0, []
        for bound, number in zip((*_BOUNDS, float("inf")), self._buckets, strict=True):
            total += number
            lines.append((f"_bucket{label(le='+Inf' if bound == float('inf') else f'{bound:g}')}", total))
        return render_family(
            name,
            "histogram",
            "Duration of completed requests.",
            [*lines, ("_sum", round(self._seconds, 6)), ("_count", total)],
        )


_HEARTBEAT = b": still here\n\n"
_READS_NOTHING = "the client read nothing for too long"
_TOO_LONG = "The first answer was too long to store."
log = logging.getLogger(__name__)


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Server options: times in seconds, the size of a body in bytes.

    A client that reads nothing for ``stall`` seconds counts as gone. Replies have ``headers``, unless a route sets
    others.
    """

    body_limit: int = 20_000_000
    heartbeat: float = 15.0
    stall: float = 60.0
    headers: Mapping[str, str] = {}


class FrontDoor(Protocol[CallerT]):
    """One front end of a server: its callers, and the format of its errors."""

    async def authenticate(self, request: Request[CallerT], scope: str) -> CallerT:
        """Return the caller of a request; raises a `Problem` for one that is unknown or lacks the scope."""

    async def check_again(self, request: Request[CallerT], scope: str) -> None:
        """Raise a `Problem` if the caller of a running request has lost its permission; called periodically."""

    def render_problem(self, problem: Problem) -> Reply:
        """Return an error as a complete reply."""


class HttpApplication:
    """Answers every request with its route's reply, or with an error as its front door renders it."""

    def __init__(
        self,
        router: Router,
        front_door: FrontDoor[Any],
        idempotency: IdempotencyStore,
        origins: OriginPolicy,
        limits: RequestLimiter,
        metrics: RequestMetrics,
        options: ServerOptions,
    ) -> None:
        self._router = router
        self._front_door = front_door
        self.render_problem = front_door.render_problem
        self._idempotency = idempotency
        self._origins = origins
        self._limits = limits
        self._metrics = metrics
        self._options = options
        self.ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request: Request[Any] = Request(scope, receive)
        started = perf_counter()
        added = self._origins.reply_headers(request.headers.get("origin"))
        headers = {**self._options.headers, **added} if added else self._options.headers
        exchange = _Exchange(send, headers, self._options)
        route: Route | None = None
        try:
            self._origins.check(request.headers)
            if request.method == "OPTIONS":
                await exchange.write(self._answer_preflight(request))
                return
            route, request.parts = self._router.find(request.method, request.path)
            await self._serve(request, route, exchange)
        except ClientGone:
            exchange.status = exchange.status or 499
        except TalariaError as error:
            await exchange.write(self.render_problem(to_problem(error)))
        except Exception:  # a bug ends the request, not the server
            log.exception("%s %s failed", request.method, route.path if route else "")
            await exchange.write(self.render_problem(make_server_problem(TalariaError.public)))
        finally:
            self._metrics.count(route.path if route else "", exchange.status, perf_counter() - started)

    async def _serve(self, request: Request[Any], route: Route, exchange: "_Exchange") -> None:
        if self.ending:
            raise ServerStopping
        if route.scope is None:  # no caller, so no limit for it, and no body: `/health` always answers
            await exchange.give(await route.handler(request), request)
            return
        request.caller = await self._front_door.authenticate(request, route.scope)
        if request.caller.name:
            exchange.check_caller = partial(self._front_door.check_again, request, route.scope)
        self._limits.count(request.caller.name)
        self._limits.begin(request.caller.name)
        try:
            await request.load(route.body_limit or self._options.body_limit, self._options.stall)
            key = request.headers.get(HEADER) if route.repeatable else None
            if key is not None:
                await self._answer_once(request, route, exchange, key)
            else:
                await self._answer(request, route, exchange)
        finally:
            self._limits.end(request.caller.name)

    async def _answer(self, request: Request[Any], route: Route, exchange: "_Exchange") -> None:
        """Answer while the client is connected; otherwise cancel the handler."""
        if route.method == "GET" or route.lasting:
            await exchange.give(await route.handler(request), request)
        else:
            await run_with(self._run_handler(request, route, exchange), exchange.attend(request))

    async def _run_handler(self, request: Request[Any], route: Route, exchange: "_Exchange") -> None:
        reply = await route.handler(request)
        if reply.stream is None:
            await exchange.write(reply)
        else:
            await exchange.pour(reply, reply.stream, request)

    async def _answer_once(self, request: Request[Any], route: Route, exchange: "_Exchange", key: str) -> None:
        """Answer a repeatable request: the client may disconnect and return for the answer."""
        found = await self._idempotency.begin(key, request.caller.name, request.method, request.path, request.body)
        if isinstance(found, StoredReply):
            headers = {**found.headers, "idempotent-replayed": "true"}
            await exchange.write(_to_reply(structs.replace(found, headers=headers)))
            return
        try:
            stored = await run_with(self._make_first_reply(request, route, exchange), self._idempotency.hold(found))
        except TalariaError as error:
            stored = StoredReply.of(self.render_problem(to_problem(error)))
        except Exception:
            await self._idempotency.end(
                found, StoredReply.of(self.render_problem(make_server_problem(TalariaError.public)))
            )
            raise
        await self._idempotency.end(found, self._limit_size(stored))
        await exchange.write(_to_reply(stored))

    async def _make_first_reply(self, request: Request[Any], route: Route, exchange: "_Exchange") -> StoredReply:
        reply = await route.handler(request)
        if reply.stream is None:
            return StoredReply.of(reply)
        body = await exchange.give(reply, request, until_complete=True)
        if not reply.stream.is_whole:  # not an answer: the request may be made again
            raise ServerStopping
        return StoredReply(reply.status, reply.content_type, reply.headers, body)

    def _limit_size(self, stored: StoredReply) -> StoredReply:
        """Return what repetitions get: the first answer, or an error if it is too long to store."""
        if len(stored.body) <= MAX_STORED_BYTES:
            return stored
        return StoredReply.of(self.render_problem(make_server_problem(_TOO_LONG, code="answer_not_kept")))

    def _answer_preflight(self, request: Request[Any]) -> Reply:
        methods = ", ".join(self._router.methods(request.path))
        headers = self._origins.preflight_headers(request.headers, methods)
        return Reply(status=HTTPStatus.NO_CONTENT, headers={"allow": methods, **headers})


class _Exchange:
    """The response to one client; in slots, since an open stream of a browser holds one."""

    __slots__ = (
        "_blocked_since", "_headers", "_is_gone", "_is_streaming", "_options", "_send", "_sending", "_sent",
        "check_caller", "status",
    )  # fmt: skip

    def __init__(self, send: Send, headers: Mapping[str, str], options: ServerOptions) -> None:
        self.status = 0
        self._send = send
        self._headers = headers
        self._options = options
        self._sent = 0
        self._is_streaming = False
        self._blocked_since: float | None = None  # while a piece of a stream is being sent
        self._sending: asyncio.Timeout | None = None  # of that piece; `attend` expires it
        self._is_gone = False
        self.check_caller: Callable[[], Awaitable[None]] | None = None

    async def write(self, reply: Reply) -> None:
        """Send a complete reply, unless another was started."""
        if self.status:
            return
        await self._send_head(reply, ("content-length", str(len(reply.body))))
        await self._send_body(reply.body, more=False)

    async def give(self, reply: Reply, request: Request[Any], *, until_complete: bool = False) -> bytes:
        """Send a reply while the client is connected.

        With ``until_complete`` all of a stream is read and returned anyway.
        """
        if reply.stream is None:
            await self.write(reply)
            return reply.body
        collected: list[bytes] = []
        streaming = self.pour(reply, reply.stream, request, collected if until_complete else None)
        await run_with(streaming, self.attend(request, until_complete=until_complete))
        return b"".join(collected)

    async def pour(
        self, reply: Reply, stream: ReplyStream, request: Request[Any], collected: list[bytes] | None = None
    ) -> None:
        """Send a streamed reply; ``collected`` gets all of it, even without a client."""
        try:
            await self._send_head(reply)
            if request.method == "HEAD":  # nobody reads the rest
                await self._send_body(b"", more=False)
            else:
                await self._send_chunks(stream, collected)
        finally:
            await stream.close()

    async def attend(self, request: Request[Any], *, until_complete: bool = False) -> None:
        """Detect that the client is gone or its permission revoked, and send keep-alives for proxies."""
        while True:
            try:
                await self._watch_client(request)
            except ClientGone:
                if not until_complete:
                    raise
                self._give_up_client()
                return
            except Problem:
                if not until_complete:
                    raise
                self.check_caller = None

    async def _send_chunks(self, stream: ReplyStream, collected: list[bytes] | None) -> None:
        """Send a stream while `attend` watches the client; without it, all is still read if it is ``collected``."""
        self._is_streaming = True
        async for piece in stream:
            if collected is not None:
                collected.append(piece)
            if not self._is_gone:
                await self._send_piece(piece)
            if self._is_gone and collected is None:
                raise ClientGone(_READS_NOTHING)
        self._is_streaming = False
        try:
            await self._send_body(b"", more=False)
        except ClientGone:
            if collected is None:
                raise

    async def _send_piece(self, piece: bytes) -> None:
        """Send a piece of a stream, unless `attend` gives up on the client meanwhile."""
        self._sent += 1
        self._blocked_since = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None) as self._sending:  # without a time, so without a timer
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            if not self._is_gone:
                raise
        self._blocked_since = None

    def _give_up_client(self) -> None:
        """Send nothing more, and end the sending of a piece that the client doesn't read."""
        self._is_gone = True
        if self._blocked_since is not None and self._sending is not None:
            self._sending.reschedule(asyncio.get_running_loop().time())
            self._blocked_since = None

    async def _watch_client(self, request: Request[Any]) -> None:
        last_sent = self._sent
        while True:
            try:
                async with asyncio.timeout(min(self._options.heartbeat, self._options.stall)):
                    await request.wait_for_disconnect()
            except TimeoutError:
                if self.check_caller is not None:
                    await self.check_caller()
                now = asyncio.get_running_loop().time()
                if self._blocked_since is not None:
                    if now - self._blocked_since >= self._options.stall:
                        self._give_up_client()
                elif self._is_streaming and last_sent == self._sent and not self._is_gone:
                    await self._send_body(_HEARTBEAT, more=True)
                last_sent = self._sent

    async def _send_head(self, reply: Reply, *more: tuple[str, str]) -> None:
        self.status = reply.status
        headers = {
            "date": formatdate(time(), usegmt=True),
            "content-type": reply.content_type,
            "x-request-id": f"req_{new_id()}",
            **self._headers,
            **reply.headers,
        }
        if reply.status == HTTPStatus.NO_CONTENT:
            headers.pop("content-type")
            more = ()
        pairs = [*headers.items(), *more]
        encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": reply.status, "headers": encoded})

    async def _send_body(self, chunk: bytes, *, more: bool) -> None:
        self._sent += 1
        if self._is_gone:
            return
        try:
            async with asyncio.timeout(self._options.stall):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": more})
        except TimeoutError as error:
            raise ClientGone(_READS_NOTHING) from error


def _to_reply(stored: StoredReply) -> Reply:
    return Reply(status=stored.status, body=stored.body, content_type=stored.content_type, headers=stored.headers)
