"""Traces: the model calls and tool calls of a turn over time, read from the store."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct, structs

from talaria.contracts.stores.turns import Step, Turn
from talaria.contracts.turns import ModelStep
from talaria.core.messages import ToolResult, Usage
from talaria.runtime.turn_log import MODEL, TOOL, CallRecord

ToolSpanState = Literal["ok", "failed", "interrupted", "running"]

_decode_model = msgspec.json.Decoder(ModelStep).decode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


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
            spans.append(_model(step, step.result, turn.started_at))
            model_began = spans[-1].started_at
            resumed_at.clear()  # a model may reuse the id of a call in another reply
        elif step.kind == TOOL:
            record = _decode_call(step.request)
            spans.append(_tool(step, record, resumed_at.get(record.call.id) or model_began, turn, end))
            resumed_at[record.call.id] = step.started_at
    return TurnTrace(turn=turn, ended_at=end, spans=tuple(reversed(spans)))


def sum_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of the usage."""
    rows = [structs.astuple(usage) for usage in usages]
    return Usage(*map(sum, zip(*rows, strict=True)))


def _model(step: Step, result: str, turn_began: datetime) -> ModelSpan:
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


def _tool(step: Step, record: CallRecord, resumed_at: datetime | None, turn: Turn, end: datetime) -> ToolSpan:
    result = _decode_result(step.result) if step.result else None
    return ToolSpan(
        number=step.number,
        name=record.call.name,
        call_id=record.call.id,
        summary=record.summary,
        state=_state(result, running=resumed_at is None and turn.ended_at is None),
        started_at=step.started_at,
        ended_at=max(step.started_at, step.ended_at or resumed_at or end),
        arguments_size=len(record.call.arguments),
        result_size=len(result.text) if result else 0,
        failure=result.text if result and result.failed else "",
    )


def _state(result: ToolResult | None, *, running: bool) -> ToolSpanState:
    if result is not None:
        return "failed" if result.failed else "ok"
    return "running" if running else "interrupted"
