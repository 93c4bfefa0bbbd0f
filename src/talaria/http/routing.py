"""Routes, and requests and replies as their handlers see them, directly on ASGI.

Routes are data from which dispatch and documentation are derived.

To add routes, write a class with ``routes() -> tuple[Route, ...]`` whose handlers take a `Request` and return a
`Reply`, and list it where `app` builds the application (``app/api.py``). Read the body with ``request.read(Struct)``,
the query with ``request.asked(Struct)``, and values of path braces from ``request.parts``; a `Problem` becomes an error
response, as do the errors of `core`. Caller, limits, body size, idempotency and disconnected clients are handled around
the handler. The OpenAPI document is generated from the structs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from talaria.http.errors import NUL_REFUSED, ClientGone, Problem, make_bad_json, make_not_found

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MAX_DROPPED = 100_000_000  # bytes of a too large body that are read, so that the client gets the answer
JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
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

    def asked(self, kind: type[T]) -> T:
        """Return the query as a struct, or raise a `Problem`."""
        if b"%00" in self._query or b"\0" in self._query:
            raise Problem(NUL_REFUSED, code="invalid_value")
        try:
            return msgspec.convert(self.query, kind, strict=False)
        except msgspec.ValidationError as error:
            sentence, _, place = str(error).partition(" - at `")
            param = place.rstrip("`").removeprefix("$.") or None
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

    async def gone(self) -> None:
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
    server's limit.
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
