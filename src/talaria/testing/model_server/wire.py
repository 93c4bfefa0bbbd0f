"""What a wire protocol has to know: where its key is, how a reply and an error look."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def event(data: Json, *, name: str = "", piece: bool = False) -> Frame:
    """Return a server-sent event, named where the protocol names them."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return Frame(head + b"data: " + msgspec.json.encode(data) + b"\n\n", piece)


def before_piece(frames: Iterable[Frame], number: int) -> list[Frame]:
    """Return the frames up to and with the first ``number`` pieces, without what closes a complete reply."""
    kept: list[Frame] = []
    sent = last = 0
    for frame in frames:
        if frame.piece and sent == number:
            break
        kept.append(frame)
        if frame.piece:
            sent, last = sent + 1, len(kept)
            if sent == number:
                break
    return kept[:last] if sent else kept
