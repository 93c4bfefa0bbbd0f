"""The contract of a wire protocol: its key, its replies and its errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from talaria.testing.model_server.exchange import Exchange, Fail, ProtocolName, Say

Json = Mapping[str, object]


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
    places = [place for place, frame in enumerate(frames) if frame.piece]
    ends = [places[0], *(place + 1 for place in places)] if places else [1]
    return frames[: ends[min(pieces, len(places))]]


def truncate_event(frame: Frame) -> bytes:
    """Return an event whose JSON ends in the middle."""
    return frame.data.rstrip()[:-8] + b"\n\n"


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
