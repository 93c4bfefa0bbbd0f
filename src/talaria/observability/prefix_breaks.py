"""Breaks of the prompt prefix, and their cost in the next model call."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.observability.trace import ModelSpan
from talaria.sessions.model_context import PREFIX_BREAK

# Usual cost of other tokens relative to a token of fresh input: prices aren't stored, only the cost of a call.
_CACHE_READ, _CACHE_WRITE, _OUTPUT = 0.1, 1.25, 5.0
_PAGE = 1000


class _Reason(Struct, frozen=True):
    reason: str


_decode = msgspec.json.Decoder(_Reason).decode


class PaidCall(Struct, frozen=True):
    """Model call with the number of its turn in the session."""

    turn: int
    span: ModelSpan


class PrefixBreak(Struct, frozen=True, kw_only=True):
    """Request with a different prefix than the previous one, and the model call that paid for it.

    ``tokens`` were not read from the cache by that call; the cost is estimated from that of the whole call, and 0 if
    unknown. Without a ``turn`` there has been no call since. Of several breaks before the same call the first has the
    cost, and the others are ``shared``.
    """

    at: datetime
    reason: str
    model: str = ""
    turn: int | None = None
    step: int | None = None
    tokens: int = 0
    cost_microdollars: int = 0
    shared: bool = False


def read_breaks(store: Transaction, session_id: SessionId) -> list[tuple[datetime, str]]:
    """Return the times and reasons of a session's prefix breaks, oldest first."""
    return [
        (event.at, _decode(event.payload).reason)
        for event in _read_events(store, session_id)
        if event.kind == PREFIX_BREAK
    ]


def price_breaks(found: Iterable[tuple[datetime, str]], calls: Iterable[PaidCall]) -> list[PrefixBreak]:
    """Return the breaks with their costs; both inputs are in order of time, calls are read lazily."""
    priced: list[PrefixBreak] = []
    remaining = iter(calls)
    call = next(remaining, None)
    for at, reason in found:
        while call is not None and call.span.started_at < at:
            call = next(remaining, None)
        priced.append(_price_break(at, reason, call, priced))
    return priced


def estimate_cost(usage: Usage) -> int:
    """Return the part of a call's cost, in microdollars, for input not read from the cache."""
    fresh = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    uncached = fresh + _CACHE_WRITE * usage.cache_write_tokens
    total = uncached + _CACHE_READ * usage.cache_read_tokens + _OUTPUT * usage.output_tokens
    return round(usage.cost_microdollars * uncached / total) if total else 0


def _price_break(at: datetime, reason: str, call: PaidCall | None, before: Sequence[PrefixBreak]) -> PrefixBreak:
    if call is None:
        return PrefixBreak(at=at, reason=reason)
    span, usage = call.span, call.span.usage
    shared = bool(before) and (before[-1].turn, before[-1].step) == (call.turn, span.number)
    return PrefixBreak(
        at=at,
        reason=reason,
        model=span.model,
        turn=call.turn,
        step=span.number,
        tokens=0 if shared else max(0, usage.input_tokens - usage.cache_read_tokens),
        cost_microdollars=0 if shared else estimate_cost(usage),
        shared=shared,
    )


def _read_events(store: Transaction, session_id: SessionId) -> Iterator[StreamEvent]:
    seq = 0
    while page := store.events.after(f"session:{session_id}", seq, _PAGE):
        yield from page
        seq = page[-1].seq
