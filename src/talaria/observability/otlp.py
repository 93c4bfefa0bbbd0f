"""Finished turns as OpenTelemetry spans in OTLP/JSON: names, sizes, times and costs, never content."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec import Struct

from talaria import __version__
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Turn
from talaria.core.messages import Usage
from talaria.observability.trace import ModelSpan, Span, ToolSpan, TurnTrace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 1, 2
_AGENT = "talaria"

Attributes = dict[str, str | int | float]


class OtlpValue(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A value of an attribute; OTLP writes whole numbers as text."""

    string_value: str | None = None
    int_value: str | None = None
    double_value: float | None = None


class OtlpAttribute(Struct, frozen=True):
    """A named value."""

    key: str
    value: OtlpValue


class OtlpStatus(Struct, frozen=True):
    """The status of a span: 1 ok, 2 error."""

    code: int


class OtlpSpan(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One span; ids are hexadecimal, times nanoseconds since 1970 as text."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    name: str
    kind: int
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: tuple[OtlpAttribute, ...]
    status: OtlpStatus


class OtlpScope(Struct, frozen=True):
    """The instrumentation scope of the spans."""

    name: str
    version: str


class OtlpScopeSpans(Struct, frozen=True):
    """Spans by scope."""

    scope: OtlpScope
    spans: tuple[OtlpSpan, ...]


class OtlpResource(Struct, frozen=True):
    """The source of the spans."""

    attributes: tuple[OtlpAttribute, ...]


class OtlpResourceSpans(Struct, frozen=True, rename="camel"):
    """Spans by source."""

    resource: OtlpResource
    scope_spans: tuple[OtlpScopeSpans, ...]


class OtlpTraces(Struct, frozen=True, rename="camel"):
    """The body of one export."""

    resource_spans: tuple[OtlpResourceSpans, ...]


_encode = msgspec.json.Encoder().encode


def encode_spans(spans: Iterable[OtlpSpan]) -> bytes:
    """Return the body of an export of these spans."""
    resource = OtlpResource(_attributes({"service.name": _AGENT, "service.version": __version__}))
    scoped = OtlpScopeSpans(OtlpScope("talaria.sessions", __version__), tuple(spans))
    return _encode(OtlpTraces((OtlpResourceSpans(resource, (scoped,)),)))


def build_spans(session: Session, trace: TurnTrace) -> list[OtlpSpan]:
    """Return the span of a turn and those of its steps; the same turn gets the same ids."""
    steps = [
        _model(trace.turn, span) if isinstance(span, ModelSpan) else _tool(trace.turn, span) for span in trace.spans
    ]
    return [_turn(session, trace), *steps]


def _turn(session: Session, trace: TurnTrace) -> OtlpSpan:
    turn = trace.turn
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": _AGENT,
        "gen_ai.conversation.id": session.id,
        "talaria.session.source": session.source,
        "talaria.turn.id": turn.id,
        "talaria.turn.state": turn.state,
        **_usage(trace.usage),
    }
    return OtlpSpan(
        trace_id=_digest(turn.id, 16),
        span_id=_digest(turn.id, 8),
        name=f"invoke_agent {_AGENT}",
        kind=_INTERNAL,
        start_time_unix_nano=_nanoseconds(turn.started_at),
        end_time_unix_nano=_nanoseconds(trace.ended_at),
        attributes=_attributes(attributes),
        status=OtlpStatus(_ERROR if turn.state == "failed" else _OK),
    )


def _model(turn: Turn, span: ModelSpan) -> OtlpSpan:
    first = {} if span.first_text_seconds is None else {"talaria.first_text.seconds": span.first_text_seconds}
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": span.model,
        **_usage(span.usage),
        **first,
    }
    return _step(turn, span, f"chat {span.model}", attributes)


def _tool(turn: Turn, span: ToolSpan) -> OtlpSpan:
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": span.name,
        "gen_ai.tool.call.id": span.call_id,
        "gen_ai.tool.type": "function",
        "talaria.tool.arguments.size": span.arguments_size,
        "talaria.tool.result.size": span.result_size,
        **({} if span.state == "ok" else {"error.type": span.state}),
    }
    return _step(turn, span, f"execute_tool {span.name}", attributes)


def _step(turn: Turn, span: Span, name: str, attributes: Attributes) -> OtlpSpan:
    return OtlpSpan(
        trace_id=_digest(turn.id, 16),
        span_id=_digest(f"{turn.id}:{span.number}", 8),
        parent_span_id=_digest(turn.id, 8),
        name=name,
        kind=_CLIENT if isinstance(span, ModelSpan) else _INTERNAL,
        start_time_unix_nano=_nanoseconds(span.started_at),
        end_time_unix_nano=_nanoseconds(span.ended_at),
        attributes=_attributes(attributes),
        status=OtlpStatus(_ERROR if "error.type" in attributes else _OK),
    )


def _usage(usage: Usage) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "talaria.cost.microdollars": usage.cost_microdollars,
    }


def _attributes(values: Attributes) -> tuple[OtlpAttribute, ...]:
    return tuple(OtlpAttribute(key, _value(value)) for key, value in values.items())


def _value(value: str | float) -> OtlpValue:
    match value:
        case str():
            return OtlpValue(string_value=value)
        case int():
            return OtlpValue(int_value=str(value))
        case _:
            return OtlpValue(double_value=value)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _nanoseconds(moment: datetime) -> str:
    return str((moment - _EPOCH) // _MICROSECOND * 1000)
