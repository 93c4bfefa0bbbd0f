"""Traces of turns and sessions: calls over time, and breaks of the prompt prefix with their cost."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Step, Turn
from talaria.contracts.turns import ModelStep
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import ToolResult, Usage
from talaria.runtime.turn_log import MODEL, TOOL, CallRecord
from talaria.sessions.model_context import PREFIX_BREAK

ToolSpanState = Literal["ok", "failed", "interrupted", "running"]
_decode_model = msgspec.json.Decoder(ModelStep).decode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode
# Usual cost of other tokens relative to a token of fresh input: prices aren't stored, only the cost of a call.
_CACHE_READ, _CACHE_WRITE, _OUTPUT = 0.1, 1.25, 5.0
_PAGE = 1000
_LONGEST_NUMBER = 7


class ModelSpan(Struct, frozen=True, kw_only=True, tag="model"):
    """A model call from its request to the end of its reply."""

    number: int
    model: str
    started_at: datetime
    ended_at: datetime
    first_text_seconds: float | None
    context: int
    usage: Usage


class ToolSpan(Struct, frozen=True, kw_only=True, tag="tool"):
    """A tool call; if its end is unknown, ``ended_at`` is when the turn continued or ended without it.

    Sizes are in characters; ``failure`` is the tool's error text.
    """

    number: int
    name: str
    call_id: str
    summary: str
    state: ToolSpanState
    started_at: datetime
    ended_at: datetime
    arguments_size: int
    result_size: int = 0
    failure: str = ""


Span = ModelSpan | ToolSpan


class TurnTrace(Struct, frozen=True, kw_only=True):
    """A turn with its steps in stored order; a running one ends now."""

    turn: Turn
    ended_at: datetime
    spans: tuple[Span, ...]

    @property
    def usage(self) -> Usage:
        """Return the usage of all its model calls."""
        return sum_usage(span.usage for span in self.models())

    def models(self) -> Iterator[ModelSpan]:
        """Yield the model calls."""
        return (span for span in self.spans if isinstance(span, ModelSpan))

    def tools(self) -> Iterator[ToolSpan]:
        """Yield the tool calls."""
        return (span for span in self.spans if isinstance(span, ToolSpan))


def read_turn(turn: Turn, steps: Sequence[Step], now: datetime) -> TurnTrace:
    """Return a turn with its steps; raises `msgspec.MsgspecError` for unreadable data."""
    spans: list[Span] = []
    resumed_at: dict[str, datetime] = {}
    end = turn.ended_at or now
    model_began: datetime | None = None
    for step in reversed(steps):
        if step.kind == MODEL and step.result:
            spans.append(_build_model_span(step, step.result, turn.started_at))
            model_began = spans[-1].started_at
            resumed_at.clear()  # a model may reuse the id of a call in another reply
        elif step.kind == TOOL:
            record = _decode_call(step.request)
            spans.append(_build_tool_span(step, record, resumed_at.get(record.call.id) or model_began, turn, end))
            resumed_at[record.call.id] = step.started_at
    return TurnTrace(turn=turn, ended_at=end, spans=tuple(reversed(spans)))


def sum_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of the usage."""
    rows = [structs.astuple(usage) for usage in usages]
    return Usage(*map(sum, zip(*rows, strict=True)))


class _Reason(Struct, frozen=True):
    reason: str


_decode_reason = msgspec.json.Decoder(_Reason).decode


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
        (event.at, _decode_reason(event.payload).reason)
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


def _build_model_span(step: Step, result: str, turn_began: datetime) -> ModelSpan:
    """Return a model call; its step is written when the reply was stored, so its start is calculated."""
    stored = _decode_model(result)
    ended = step.ended_at or step.started_at
    return ModelSpan(
        number=step.number,
        model=stored.model,
        started_at=max(ended - timedelta(seconds=stored.seconds), min(turn_began, ended)),
        ended_at=ended,
        first_text_seconds=stored.first_text_seconds,
        context=stored.context,
        usage=stored.usage,
    )


def _build_tool_span(
    step: Step, record: CallRecord, resumed_at: datetime | None, turn: Turn, end: datetime
) -> ToolSpan:
    result = _decode_result(step.result) if step.result else None
    return ToolSpan(
        number=step.number,
        name=record.call.name,
        call_id=record.call.id,
        summary=record.summary,
        state=_find_state(result, running=resumed_at is None and turn.ended_at is None),
        started_at=step.started_at,
        ended_at=max(step.started_at, step.ended_at or resumed_at or end),
        arguments_size=len(record.call.arguments),
        result_size=len(result.text) if result else 0,
        failure=result.text if result and result.failed else "",
    )


def _find_state(result: ToolResult | None, *, running: bool) -> ToolSpanState:
    if result is not None:
        return "failed" if result.failed else "ok"
    return "running" if running else "interrupted"


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
