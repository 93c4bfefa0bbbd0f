"""Breaks of the prompt prefix, and what each made the next model call pay."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.events import Event
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.sessions.prefix import BREAK
from talaria.sessions.trace import ModelSpan

# What other tokens usually cost, measured by a token of fresh input: prices are not stored, only what a call cost.
_CACHE_READ, _CACHE_WRITE, _OUTPUT = 0.1, 1.25, 5.0
_PAGE = 1000


class _Reason(Struct, frozen=True):
    reason: str


_decode = msgspec.json.Decoder(_Reason).decode


class PaidCall(Struct, frozen=True):
    """A model call, and the number of its turn in the session."""

    turn: int
    span: ModelSpan


class Break(Struct, frozen=True, kw_only=True):
    """A request that did not begin as the one before, and the model call that paid for it.

    ``tokens`` is what that call had to read anew; the cost is estimated from that of the whole call, and zero
    where this is not known. Without a ``turn`` no call has come since. Of several breaks before the same call the
    first bears the price, and the others are marked as ``shared``.
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
    """Return when the prefix of a conversation's requests broke, and why, oldest first."""
    return [(event.at, _decode(event.payload).reason) for event in _events(store, session_id) if event.kind == BREAK]


def price_breaks(found: Iterable[tuple[datetime, str]], calls: Iterable[PaidCall]) -> list[Break]:
    """Return the breaks with their prices; both are given in the order of time, and calls are read as needed."""
    priced: list[Break] = []
    later = iter(calls)
    call = next(later, None)
    for at, reason in found:
        while call is not None and call.span.started_at < at:
            call = next(later, None)
        priced.append(_priced(at, reason, call, priced))
    return priced


def estimate_cost(usage: Usage) -> int:
    """Return which part of a call's cost its input took that was not read from the cache."""
    fresh = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    anew = fresh + _CACHE_WRITE * usage.cache_write_tokens
    whole = anew + _CACHE_READ * usage.cache_read_tokens + _OUTPUT * usage.output_tokens
    return round(usage.cost_microdollars * anew / whole) if whole else 0


def _priced(at: datetime, reason: str, call: PaidCall | None, before: Sequence[Break]) -> Break:
    if call is None:
        return Break(at=at, reason=reason)
    span, usage = call.span, call.span.usage
    shared = bool(before) and (before[-1].turn, before[-1].step) == (call.turn, span.number)
    return Break(
        at=at,
        reason=reason,
        model=span.model,
        turn=call.turn,
        step=span.number,
        tokens=0 if shared else max(0, usage.input_tokens - usage.cache_read_tokens),
        cost_microdollars=0 if shared else estimate_cost(usage),
        shared=shared,
    )


def _events(store: Transaction, session_id: SessionId) -> Iterator[Event]:
    seq = 0
    while page := store.events.after(f"session:{session_id}", seq, _PAGE):
        yield from page
        seq = page[-1].seq
