"""The contract of a wire protocol, and the delivery of scripted answers over it, with faults or for benchmarks."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, assert_never

import msgspec
from aiohttp import web

from talaria.testing.model_server.exchange import (
    Collapse,
    CutOff,
    Exchange,
    Fail,
    Fault,
    Garbage,
    ProtocolName,
    Say,
    Silence,
    VendorFail,
    WrongType,
)

Json = Mapping[str, object]
_INVALID = "invalid_request_error"
_BY_STATUS: Mapping[int, tuple[str, str | None, str]] = {
    400: (_INVALID, None, "Invalid request."),
    401: (_INVALID, "invalid_api_key", "Incorrect API key provided."),
    403: (_INVALID, "unsupported_country_region_territory", "Country, region, or territory not supported"),
    404: (_INVALID, None, "Not found."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    503: ("server_error", None, "The server is overloaded or not ready yet."),
}
_OTHER = ("server_error", None, "The server had an error while processing your request.")
_QUOTA = "insufficient_quota"
_JSON = "application/json"
_EVENTS = "text/event-stream"


class Frame(NamedTuple):
    """One server-sent event; a ``piece`` carries some of the reply, the others only frame it."""

    data: bytes
    piece: bool = False


class Wire(Protocol):
    """One wire protocol, as its vendor speaks it."""

    name: ProtocolName
    request_id_header: str

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that a request carries."""

    def whole(self, say: Say, exchange: Exchange) -> Json:
        """Return the reply as one body."""

    def frames(self, say: Say, exchange: Exchange) -> Iterator[Frame]:
        """Yield the reply as a stream."""

    def error(self, fail: Fail, request_id: str) -> Json:
        """Return the body of an error."""

    def stream_error(self, fail: Fail, exchange: Exchange, number: int) -> Frame:
        """Return an error that comes inside a stream, as its event of this number."""

    def models(self, names: Sequence[str]) -> Json:
        """Return the body that lists models."""


def bearer_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of an ``Authorization`` header."""
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" and key else None


def event(data: Json, *, name: str = "", piece: bool = False) -> Frame:
    """Return a server-sent event, named where the protocol names them."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return Frame(head + b"data: " + msgspec.json.encode(data) + b"\n\n", piece)


def leading_frames(frames: Sequence[Frame], pieces: int) -> Sequence[Frame]:
    """Return the frames up to and with so many pieces; if there are fewer, without what closes the reply."""
    indexes = [index for index, frame in enumerate(frames) if frame.piece]
    ends = [indexes[0], *(index + 1 for index in indexes)] if indexes else [1]
    return frames[: ends[min(pieces, len(indexes))]]


def truncate_event(frame: Frame) -> bytes:
    """Return an event whose JSON ends in the middle."""
    return frame.data.rstrip()[:-8] + b"\n\n"


def error_object(fail: Fail) -> Json:
    """Return what stands behind ``error`` in a body."""
    usual, code, message = _BY_STATUS.get(fail.status, _OTHER)
    return {
        "message": fail.message or message,
        "type": _QUOTA if fail.kind == _QUOTA else usual,
        "param": fail.param,
        "code": fail.kind or code,
    }


def model_list(names: Sequence[str]) -> Json:
    """Return the body of a list of models."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 1735689600, "owned_by": "talaria"} for name in names],
    }


class Instant:
    """The same text in ``chunks`` pieces, encoded once per form and sent in one write."""

    def __init__(self, text: str, chunks: int = 50) -> None:
        self._say = Say(text, chunks=chunks)
        self._bodies: dict[_Form, bytes] = {}

    def body(self, wire: Wire, exchange: Exchange) -> bytes:
        """Return all that goes out for such a request."""
        options = exchange.options
        form = _Form(wire.name, options.model, bool(options.stream), options.wants_usage)
        if form not in self._bodies:
            self._bodies[form] = self._make(wire, exchange)
        return self._bodies[form]

    def _make(self, wire: Wire, exchange: Exchange) -> bytes:
        if exchange.options.stream:
            return b"".join(frame.data for frame in wire.frames(self._say, exchange))
        return msgspec.json.encode(wire.whole(self._say, exchange))


class _Form(NamedTuple):
    protocol: ProtocolName
    model: str
    stream: bool
    usage: bool


Answer = Say | Instant | Fault


@dataclass(frozen=True, slots=True)
class Delivery:
    """The response to one client."""

    request: web.Request
    wire: Wire
    exchange: Exchange

    async def send(self, answer: Answer) -> web.StreamResponse:
        """Answer the request; the response is returned once all of it has been sent."""
        match answer:
            case Say():
                return await self._say(answer)
            case Instant():
                return self._send_body(answer.body(self.wire, self.exchange), _EVENTS if self._streams else _JSON)
            case Fail() | VendorFail():
                return self.fail(answer.on(self.wire.name))
            case CutOff() | Silence() | Garbage() | Collapse():
                return await self._send_broken(answer)
            case WrongType():
                return self._send_body(answer.page.encode(), "text/html")
            case _:
                assert_never(answer)

    def fail(self, fail: Fail) -> web.Response:
        """Return an error in the vendor's shape."""
        body = msgspec.json.encode(self.wire.error(fail, self._request_id))
        response = self._send_body(body, _JSON, status=fail.status)
        if fail.retry_after is not None:
            response.headers["retry-after"] = f"{fail.retry_after:g}"
        return response

    @property
    def _streams(self) -> bool:
        return bool(self.exchange.options.stream)

    @property
    def _request_id(self) -> str:
        return f"req_{self.exchange.id}"

    @property
    def _headers(self) -> dict[str, str]:
        return {self.wire.request_id_header: self._request_id}

    def _send_body(self, body: bytes, content_type: str, *, status: int = 200) -> web.Response:
        return web.Response(status=status, body=body, content_type=content_type, headers=self._headers)

    async def _say(self, say: Say) -> web.StreamResponse:
        if not self._streams:
            return self._send_body(self._encode_body(say), _JSON)
        response = await self._start(_EVENTS)
        await _write(response, self.wire.frames(say, self.exchange), say)
        return response

    async def _send_broken(self, fault: CutOff | Silence | Garbage | Collapse) -> web.StreamResponse:
        if isinstance(fault, CutOff | Silence) and fault.after == 0:
            return await self._hang_up(web.StreamResponse(), fault)
        if not self._streams:
            return await self._send_broken_body(fault)
        frames = list(self.wire.frames(fault.say, self.exchange))
        good = leading_frames(frames, fault.after)
        response = await self._start(_EVENTS)
        await _write(response, good, fault.say)
        match fault:
            case Garbage():
                await response.write(truncate_event(frames[len(good)]))
            case Collapse():
                error = self.wire.stream_error(fault.fail.on(self.wire.name), self.exchange, len(good))
                await response.write(error.data)
            case CutOff() | Silence():
                return await self._hang_up(response, fault)
        return response

    async def _send_broken_body(self, fault: CutOff | Silence | Garbage | Collapse) -> web.StreamResponse:
        body = self._encode_body(fault.say)
        half = body[: len(body) // 2]
        match fault:
            case Garbage():
                return self._send_body(half, _JSON)
            case Collapse():
                return self.fail(fault.fail.on(self.wire.name))
            case CutOff() | Silence():
                response = await self._start(_JSON, length=len(body))
                await response.write(half)
                return await self._hang_up(response, fault)

    async def _hang_up(self, response: web.StreamResponse, fault: CutOff | Silence) -> web.StreamResponse:
        """Say no more: hang up, or wait until the other side does."""
        if isinstance(fault, Silence):
            await asyncio.Event().wait()
        if self.request.transport is not None:
            self.request.transport.close()
        return response

    def _encode_body(self, say: Say) -> bytes:
        return msgspec.json.encode(self.wire.whole(say, self.exchange))

    async def _start(self, content_type: str, *, length: int | None = None) -> web.StreamResponse:
        response = web.StreamResponse(headers={**self._headers, "cache-control": "no-cache"})
        response.content_type = content_type
        response.content_length = length
        await response.prepare(self.request)
        return response


async def _write(response: web.StreamResponse, frames: Iterable[Frame], say: Say) -> None:
    pieces = 0
    for frame in frames:
        if frame.piece:
            await asyncio.sleep(say.pause if pieces else 0)
            if say.hold is not None and pieces >= say.hold[0]:
                await say.hold[1].wait()
            pieces += 1
        await response.write(frame.data)
