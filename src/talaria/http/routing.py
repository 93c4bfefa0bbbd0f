"""Routes, requests and replies as their handlers see them, and checks of origins and limits, directly on ASGI.

Routes are data from which dispatch and documentation are derived.

To add routes, write a class with ``routes() -> tuple[Route, ...]`` whose handlers take a `Request` and return a
`Reply`, and list it where `app` builds the application (``app/api.py``). Read the body with ``request.read(Struct)``,
the query with ``request.parse_query(Struct)``, and values of path braces from ``request.parts``; a `Problem` becomes an
error response, as do the errors of `core`. Caller, limits, body size, idempotency and disconnected clients are handled
around the handler. The OpenAPI document is generated from the structs.
"""

import asyncio
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Struct

from talaria.core.messages import image_type
from talaria.http.errors import NUL_REFUSED, ClientGone, Problem, make_bad_json, make_not_found, make_too_many

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{0,255}))(?::[0-9]{1,5})?")
_MAX_AGE = "600"
_EXPOSED_HEADERS = ("x-request-id", "retry-after", "idempotent-replayed", "location")
_MINUTE = 60.0
_BURST_SECONDS = 10.0


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class OriginPolicy(Struct, frozen=True):
    """Allowed hosts and origins: ``bound`` is the listening address, ``names`` are further host names.

    If the server listens for other machines, every host name is allowed unless some are given: those requests need a
    key. Pages of other origins may read ``exposed_headers`` in addition to the server's own.
    """

    bound: str
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    exposed_headers: tuple[str, ...] = ()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise a `Problem` for a page using a foreign host name for this machine, or from a foreign origin.

        Such a page needs no key where none is required, and may post without a preflight request.
        """
        host, known = _parse_host(headers.get("host", "")), {*_LOCAL, self.bound.lower(), *self.names}
        if host is None or (host not in known and (self.names or is_loopback(self.bound))):
            raise Problem(
                "Unknown host. Use localhost, or add the name to the setting `api.hosts`.", 421, code="unknown_host"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin, headers.get("host", "")):
            raise Problem(
                "This origin isn't allowed. Add it to the setting `api.cors_origins`.",
                403,
                kind="permission_error",
                code="origin_not_allowed",
            )

    def reply_headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers that let a browser page read the reply."""
        if origin is None or not self._is_listed(origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": ", ".join((*self.exposed_headers, *_EXPOSED_HEADERS)),
            "vary": "Origin",
        }

    def preflight_headers(self, headers: Mapping[str, str], methods: str) -> dict[str, str]:
        """Return the headers of a preflight response.

        All request headers are allowed: official clients add their own.
        """
        allowed = self.reply_headers(headers.get("origin"))
        if not allowed:
            return {}
        return allowed | {
            "access-control-allow-methods": methods,
            "access-control-allow-headers": headers.get("access-control-request-headers", "*"),
            "access-control-max-age": _MAX_AGE,
            "vary": "Origin, Access-Control-Request-Headers",
        }

    def _is_allowed(self, origin: str, host: str) -> bool:
        return self._is_listed(origin) or origin.partition("://")[2].lower() == host.lower()

    def _is_listed(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins


def _parse_host(host: str) -> str | None:
    """Return the host name in a header, without the port; ``None`` for an invalid one."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"] or "").rstrip(".").lower() if found else None


class RequestLimiter:
    """Counts requests per key; 0 means no limit.

    ``per_minute`` is a token bucket: after a pause, ten seconds' worth of requests may come at once.
    """

    def __init__(self, per_minute: int, at_once: int) -> None:
        self._rate = per_minute / _MINUTE
        self._burst = max(self._rate * _BURST_SECONDS, 1.0)
        self._max_running = at_once
        self._buckets: dict[str, tuple[float, float]] = {}
        self._running: dict[str, int] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """Return the number of running requests."""
        return sum(self._running.values())

    async def wait_until_idle(self) -> None:
        """Wait until no request is running."""
        await self._idle.wait()

    def count(self, key: str) -> None:
        """Count a request, or raise a `Problem` if there were too many."""
        if not self._rate:
            return
        now = monotonic()
        tokens, at = self._buckets.get(key, (self._burst, now))
        tokens = min(tokens + (now - at) * self._rate, self._burst)
        if tokens < 1:
            wait = round((1 - tokens) / self._rate + 0.5)
            raise make_too_many("Too many requests. Wait a moment.", seconds=wait, code="rate_limit_exceeded")
        self._buckets[key] = tokens - 1, now

    def begin(self, key: str) -> None:
        """Count a request as running until `end`, or raise a `Problem` if there are too many."""
        running = self._running.get(key, 0)
        if self._max_running and running >= self._max_running:
            raise make_too_many(
                f"{self._max_running} requests with this key are already running. Wait for one to finish.",
                seconds=1,
                code="concurrency_limit_exceeded",
            )
        self._running[key] = running + 1
        self._idle.clear()

    def end(self, key: str) -> None:
        """Count a request as ended."""
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        if not self._running:
            self._idle.set()


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_MAX_DROPPED = 100_000_000  # bytes of a too large body that are read, so that the client gets the answer
JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
FILE = "application/octet-stream"
T = TypeVar("T")
CallerT = TypeVar("CallerT", bound="Caller")
_encode = msgspec.json.Encoder().encode


class Caller(Protocol):
    """An authenticated caller, as its front door knows it."""

    @property
    def name(self) -> str:
        """Return the name that limits and idempotency keys are counted under; empty for an anonymous caller."""


class Request(Generic[CallerT]):
    """A request from ``address``: ``parts`` are the values of the braces in the path.

    The front door sets ``caller``, for routes with a scope.
    """

    __slots__ = ("_query", "address", "body", "caller", "headers", "method", "parts", "path", "receive")
    caller: CallerT

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = _parse_headers(scope["headers"])
        self.parts: Mapping[str, str] = {}
        self.address: str = (scope.get("client") or ("",))[0]
        self.body = b""
        self._query: bytes = scope.get("query_string", b"")
        self.receive = receive

    @property
    def query(self) -> dict[str, str]:
        """Return the query parameters; of repeated ones the last."""
        return dict(parse_qsl(self._query.decode("latin-1"), keep_blank_values=True, errors="replace"))

    def parse_query(self, kind: type[T]) -> T:
        """Return the query as a struct, or raise a `Problem`."""
        if b"%00" in self._query or b"\0" in self._query:
            raise Problem(NUL_REFUSED, code="invalid_value")
        try:
            return msgspec.convert(self.query, kind, strict=False)
        except msgspec.ValidationError as error:
            sentence, _, location = str(error).partition(" - at `")
            param = location.rstrip("`").removeprefix("$.") or None
            raise Problem(f"The query is invalid: {sentence}.", param=param, code="invalid_value") from error

    def read(self, kind: type[T]) -> T:
        """Return the body as a struct, or raise a `Problem`."""
        try:
            self.body.decode()  # invalid UTF-8 might pass where nobody reads the text
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise make_bad_json(error) from error
        except RecursionError as error:
            raise Problem("The body is not JSON: it is nested too deeply.", code="invalid_json") from error

    async def load(self, limit: int, patience: float) -> None:
        """Read the body; raises a `Problem` if it is too large, or late."""
        try:
            async with asyncio.timeout(patience):
                await self._load(limit)
        except TimeoutError as error:
            message = f"The body didn't arrive within {patience:g} s."
            raise Problem(message, 408, code="body_timeout", headers={"connection": "close"}) from error

    async def _load(self, limit: int) -> None:
        declared = self.headers.get("content-length", "0")
        if self._expects_continue and declared.isdecimal() and int(declared) > limit:
            raise _make_too_large(limit, headers={"connection": "close"})
        chunks, size, more = [], 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size <= limit:
                chunks.append(chunk)
            elif more and size > limit + _MAX_DROPPED:
                raise _make_too_large(limit, headers={"connection": "close"})
        if size > limit:
            raise _make_too_large(limit)
        self.body = b"".join(chunks)

    @property
    def _expects_continue(self) -> bool:
        """Return whether the client waits for permission to send its body. Other clients read only after sending it."""
        return "100-continue" in self.headers.get("expect", "").lower()

    async def wait_for_disconnect(self) -> None:
        """Raise `ClientGone` when the client has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        raise ClientGone


class ReplyStream(Protocol):
    """A streamed reply; each piece is complete, so that others may be inserted in between."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces."""

    @property
    def is_whole(self) -> bool:
        """Return whether it reached its end without interruption; called after the last piece."""

    async def close(self) -> None:
        """Release its resources; always called, even if nobody read it."""


class Reply(Struct, frozen=True, kw_only=True):
    """A reply: ``body``, or a ``stream`` instead."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    stream: ReplyStream | None = None


def make_json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a struct, or anything else msgspec can encode, as a reply."""
    return Reply(status=status, body=_encode(value), headers=headers or {})


def make_file_reply(path: Path) -> Reply:
    """Return a file as a reply: a picture is shown, anything else is saved; neither may run anything."""
    body = path.read_bytes()
    picture = image_type(body[:16])
    kind = "inline" if picture else "attachment"
    headers = {
        "content-disposition": f"{kind}; filename*=UTF-8''{quote(path.name, safe='')}",
        "content-security-policy": "sandbox; default-src 'none'",
        "cache-control": "private, max-age=600",
    }
    return Reply(body=body, content_type=picture or FILE, headers=headers)


def make_event_reply(stream: ReplyStream, *, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a stream of server-sent events as a reply."""
    return Reply(
        content_type=EVENTS,
        headers={"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})},
        stream=stream,
    )


def format_sse(data: bytes, *, event: str = "", number: int | str = "") -> bytes:
    """Return one server-sent event; ``data`` is JSON, which has no line breaks."""
    head = (f"id: {number}\n" if number != "" else "") + (f"event: {event}\n" if event else "")
    return b"%bdata: %b\n\n" % (head.encode(), data)


def _make_too_large(limit: int, headers: Mapping[str, str] | None = None) -> Problem:
    return Problem(f"The body may have at most {limit:,} bytes.", 413, code="body_too_large", headers=headers)


def _parse_headers(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name; repeated ones are joined, as HTTP says."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


Handler = Callable[[Request[Any]], Awaitable[Reply]]


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path: its requirements, input and output.

    ``path`` may have parts in braces, each standing for one segment; a last one with a star stands for all the rest.
    ``scope`` is what a caller must be allowed to do; with ``None`` everybody may use the route. ``takes``, ``asks`` and
    ``reply_type`` are the structs of body, query and reply; ``events`` is the type of the ``data`` of server-sent
    events. ``repeatable`` accepts an ``Idempotency-Key``; ``lasting`` means that a disconnecting client ends nothing.
    ``used_headers`` are headers used by this route alone. ``body_limit`` is the largest body in bytes, 0 for the
    server's limit. ``sends_file`` describes a reply that is a file.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    scope: str | None
    takes: type | None = None
    asks: type | None = None
    reply_type: type | None = None
    status: int = 200
    events: Any = None
    repeatable: bool = False
    lasting: bool = False
    used_headers: tuple[str, ...] = ()
    body_limit: int = 0
    sends_file: bool = False
    tag: str = "talaria"


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[list[str], Route]] = []
        for route in self.routes:
            if "{" in route.path:
                self._patterns.append((route.path.split("/"), route))
            else:
                self._fixed.setdefault(route.path, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route and the values of its braces; raises a `Problem` if there is none."""
        lookup_method = "GET" if method == "HEAD" else method
        fixed = self._fixed.get(path, {})
        if lookup_method in fixed:
            return fixed[lookup_method], {}
        found = {route.method: (route, parts) for route, parts in self._iterate_matching(path)}
        if lookup_method in found:
            return found[lookup_method]
        allowed = ", ".join(self.methods(path))
        raise Problem(
            f"Method `{method[:20]}` isn't allowed here; use {allowed}.",
            HTTPStatus.METHOD_NOT_ALLOWED,
            code="method_not_allowed",
            headers={"allow": allowed},
        )

    def methods(self, path: str) -> list[str]:
        """Return the methods of a path, or all methods for ``*``; raises a `Problem` for an unknown path."""
        matching = self.routes if path == "*" else [route for route, _ in self._iterate_matching(path)]
        methods = {route.method for route in matching}
        if not methods:
            raise make_not_found(f"There is no `{path[:200]}`. `/openapi.json` lists all routes.", code="unknown_url")
        return [*sorted(methods | ({"HEAD"} if "GET" in methods else set())), "OPTIONS"]

    def _iterate_matching(self, path: str) -> Iterable[tuple[Route, Mapping[str, str]]]:
        """Yield the routes of a path, exact ones last: they take precedence."""
        segments = path.replace("\0", "\ufffd").split("/")  # which no id has, and PostgreSQL takes
        for pattern, route in self._patterns:
            parts = _match_parts(pattern, segments)
            if parts is not None:
                yield route, parts
        for route in self._fixed.get(path, {}).values():
            yield route, {}


def _match_parts(pattern: list[str], segments: list[str]) -> Mapping[str, str] | None:
    if pattern[-1].endswith("*}") and len(segments) > len(pattern):
        rest = len(pattern) - 1
        segments = [*segments[:rest], "/".join(segments[rest:])]
    if len(pattern) != len(segments):
        return None
    parts = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not found:
                return None
            parts[expected.strip("{*}")] = found
        elif expected != found:
            return None
    return parts
