"""A reply that costs the server almost nothing, for benchmarks."""

from typing import NamedTuple

import msgspec

from talaria.testing.model_server.received import Exchange, ProtocolName
from talaria.testing.model_server.replies import Say
from talaria.testing.model_server.wire import Wire


class Instant:
    """The same text in ``chunks`` pieces, encoded once per form and sent in one write."""

    def __init__(self, text: str, chunks: int = 50) -> None:
        self._say = Say(text, chunks=chunks)
        self._bodies: dict[_Form, bytes] = {}

    def body(self, wire: Wire, exchange: Exchange) -> bytes:
        """Return all that goes out for such a request."""
        asked = exchange.asked
        form = _Form(wire.name, asked.model, bool(asked.stream), asked.wants_usage)
        if form not in self._bodies:
            self._bodies[form] = self._make(wire, exchange)
        return self._bodies[form]

    def _make(self, wire: Wire, exchange: Exchange) -> bytes:
        if exchange.asked.stream:
            return b"".join(frame.data for frame in wire.frames(self._say, exchange))
        return msgspec.json.encode(wire.whole(self._say, exchange))


class _Form(NamedTuple):
    protocol: ProtocolName
    model: str
    stream: bool
    usage: bool
