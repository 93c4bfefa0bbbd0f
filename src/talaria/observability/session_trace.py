"""Trace of a session: the requested turns, and breaks of the prompt prefix with their cost."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Turn
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.observability.trace import ModelSpan, TurnTrace, read_turn, sum_usage
from talaria.sessions.model_context import PREFIX_BREAK

# Usual cost of other tokens relative to a token of fresh input: prices aren't stored, only the cost of a call.
_CACHE_READ, _CACHE_WRITE, _OUTPUT = 0.1, 1.25, 5.0
_PAGE = 1000
_LONGEST_NUMBER = 7


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


class NumberedTurn(Struct, frozen=True):
    """Turn with its number in the session, and the prefix breaks that its calls paid for."""

    number: int
    trace: TurnTrace
    breaks: tuple[PrefixBreak, ...] = ()


class SessionTrace(Struct, frozen=True, kw_only=True):
    """Requested turns of a session; ``breaks`` has all breaks, ``earlier`` counts omitted turns."""

    session: Session
    turns: tuple[NumberedTurn, ...]
    breaks: tuple[PrefixBreak, ...]
    earlier: int = 0

    @property
    def usage(self) -> Usage:
        """Total usage of the turns."""
        return sum_usage(turn.trace.usage for turn in self.turns)


def read_trace(store: Transaction, session: Session, now: datetime, *, turn: str | None, last: int) -> SessionTrace:
    """Read the named turn, or the last ones; raises `NotFound` or `Ambiguous`."""
    turns = list(enumerate(store.turns.find(session.id), 1))
    chosen = turns[-last:] if turn is None else [_find_turn(turns, turn)]
    found = read_breaks(store, session.id)
    breaks = price_breaks(found, _list_calls(store, turns, now, since=found[0][0])) if found else []
    return SessionTrace(
        session=session,
        turns=tuple(_build_turn(store, number, one, now, breaks) for number, one in chosen),
        breaks=tuple(breaks),
        earlier=len(turns) - len(chosen) if turn is None else 0,
    )


def _build_turn(
    store: Transaction, number: int, turn: Turn, now: datetime, breaks: Sequence[PrefixBreak]
) -> NumberedTurn:
    own = tuple(one for one in breaks if one.turn == number)
    return NumberedTurn(number, read_turn(turn, store.turns.steps(turn.id), now), own)


def _list_calls(
    store: Transaction, turns: Sequence[tuple[int, Turn]], now: datetime, *, since: datetime
) -> Iterator[PaidCall]:
    """Yield the model calls of turns that had not ended before ``since``."""
    for number, turn in turns:
        if turn.ended_at is None or turn.ended_at >= since:
            for span in read_turn(turn, store.turns.steps(turn.id), now).models():
                yield PaidCall(number, span)


def _find_turn(turns: Sequence[tuple[int, Turn]], name: str) -> tuple[int, Turn]:
    query = name.strip()
    if query.isascii() and query.isdecimal() and len(query) <= _LONGEST_NUMBER:
        found = [entry for entry in turns if entry[0] == int(query)]
    else:
        found = [entry for entry in turns if query and entry[1].id.startswith(query)]
    if not found:
        raise NotFound(f"There is no turn `{query}`; this session has turns 1 to {len(turns)}.")
    if len(found) > 1:
        raise Ambiguous(f"`{query}` matches {len(found)} turns. Give more of the id, or the number.")
    return found[0]
