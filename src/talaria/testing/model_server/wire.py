"""What a wire protocol has to know: where its key is, how a reply and an error look."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from talaria.testing.model_server.faults import Fail
from talaria.testing.model_server.received import Exchange, ProtocolName
from talaria.testing.model_server.replies import Say

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

    def late_error(self, fail: Fail, exchange: Exchange, number: int) -> Frame:
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


def opening(frames: Sequence[Frame], pieces: int) -> Sequence[Frame]:
    """Return the frames up to and with so many pieces; if there are fewer, without what closes the reply."""
    places = [place for place, frame in enumerate(frames) if frame.piece]
    ends = [places[0], *(place + 1 for place in places)] if places else [1]
    return frames[: ends[min(pieces, len(places))]]


def torn(frame: Frame) -> bytes:
    """Return an event whose JSON ends in the middle."""
    return frame.data.rstrip()[:-8] + b"\n\n"
