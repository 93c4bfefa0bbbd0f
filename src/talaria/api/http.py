"""Requests and replies as the routes see them; below is ASGI, and no framework."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from talaria.api.keys import Caller
from talaria.api.problems import NO_WORDS, ClientGone, Problem, bad_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_DROPPED = 100_000_000  # bytes of a body that is too large which are taken in for the answer to be heard
JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class Request:
    """What a client asks: ``parts`` are what the path's braces stand for, ``caller`` is who asks, from ``address``."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = _headers(scope["headers"])
        self.parts: Mapping[str, str] = {}
        self.caller = Caller()
        self.address: str = (scope.get("client") or ("",))[0]
        self.body = b""
        self._query: bytes = scope.get("query_string", b"")
        self.receive = receive

    @property
    def query(self) -> dict[str, str]:
        """What stands behind the question mark; of several values of one name the last."""
        return dict(parse_qsl(self._query.decode("latin-1"), keep_blank_values=True, errors="replace"))

    def asked(self, kind: type[T]) -> T:
        """Return the query as a struct, or raise what is wrong with it."""
        if b"%00" in self._query or b"\0" in self._query:
            raise Problem(NO_WORDS, code="invalid_value")
        try:
            return msgspec.convert(self.query, kind, strict=False)
        except msgspec.ValidationError as error:
            sentence, _, place = str(error).partition(" - at `")
            param = place.rstrip("`").removeprefix("$.") or None
            raise Problem(f"The query does not fit: {sentence}.", param=param, code="invalid_value") from error

    def read(self, kind: type[T]) -> T:
        """Return the body as a struct, or raise what is wrong with it."""
        try:
            self.body.decode()  # what is not UTF-8 might pass where nobody looks at the words
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise bad_json(error) from error
        except RecursionError as error:
            raise Problem("The body is not JSON: it is nested too deeply.", code="invalid_json") from error

    async def load(self, limit: int, patience: float) -> None:
        """Take in the body; raises a `Problem` where it has more bytes than the limit, or does not come in time."""
        try:
            async with asyncio.timeout(patience):
                await self._load(limit)
        except TimeoutError as error:
            message = f"The body did not come within {patience:g} s."
            raise Problem(message, 408, code="body_timeout", headers={"connection": "close"}) from error

    async def _load(self, limit: int) -> None:
        declared = self.headers.get("content-length", "0")
        if self._waits_to_send and declared.isdecimal() and int(declared) > limit:
            raise _too_large(limit, headers={"connection": "close"})
        pieces, size, more = [], 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size <= limit:
                pieces.append(piece)
            elif more and size > limit + _DROPPED:
                raise _too_large(limit, headers={"connection": "close"})
        if size > limit:
            raise _too_large(limit)
        self.body = b"".join(pieces)

    @property
    def _waits_to_send(self) -> bool:
        """Whether the client asks before it sends its body. Another one does not listen until it has sent all of it."""
        return "100-continue" in self.headers.get("expect", "").lower()

    async def gone(self) -> None:
        """Raise `ClientGone` when whoever asked does not listen any more."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        raise ClientGone


class Stream(Protocol):
    """A reply that is written bit by bit: each piece is whole, so that something may come between two of them."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces."""

    @property
    def is_whole(self) -> bool:
        """Whether it has come to its own end, and was not cut off; asked behind the last piece."""

    async def close(self) -> None:
        """Let go of what is behind it; called in any case, also if nobody began to read."""


class Reply(Struct, frozen=True, kw_only=True):
    """What a client gets: ``body``, or a ``stream`` in its place."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    stream: Stream | None = None


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a struct, or whatever else msgspec can encode, as a reply."""
    return Reply(status=status, body=_encode(value), headers=headers or {})


def event_reply(stream: Stream, *, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a stream of server-sent events as a reply."""
    return Reply(
        content_type=EVENTS,
        headers={"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})},
        stream=stream,
    )


def sse(data: bytes, *, event: str = "", number: int | str = "") -> bytes:
    """Return one server-sent event; ``data`` is JSON, which has no line ends."""
    head = (f"id: {number}\n" if number != "" else "") + (f"event: {event}\n" if event else "")
    return b"%bdata: %b\n\n" % (head.encode(), data)


def problem_reply(problem: Problem) -> Reply:
    """Return an error as a reply."""
    return json_reply(problem.answer, status=problem.status, headers=problem.headers)


def _too_large(limit: int, headers: Mapping[str, str] | None = None) -> Problem:
    return Problem(f"The body may have {limit:,} bytes at most.", 413, code="body_too_large", headers=headers)


def _headers(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by their names in lower case; repeated ones are joined, as HTTP says."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found
