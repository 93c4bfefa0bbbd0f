"""Export finished turns to an OpenTelemetry collector: names, sizes, times and costs, never content."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b

import msgspec
from msgspec import Struct

from talaria import __version__
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Step, Turn
from talaria.contracts.turns import AfterCommit, TurnResult
from talaria.core.errors import ProviderError
from talaria.core.messages import Usage
from talaria.observability.trace import ModelSpan, Span, ToolSpan, TurnTrace, read_turn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INTERNAL, _CLIENT = 1, 3
_OK, _ERROR = 1, 2
_AGENT = "talaria"
Attributes = dict[str, str | int | float]
_encode = msgspec.json.Encoder().encode
_PATH = "/v1/traces"
_REDIRECTED = 300
_RETRYABLE_STATUSES = {429, 502, 503, 504}
_TURNS_WAITING, _TURNS_AT_ONCE = 256, 32
# Post a body to a URL, once, and return the status and headers of the response; headers are in lower case.
HttpPost = Callable[[str, bytes, Mapping[str, str]], Awaitable[tuple[int, Mapping[str, str]]]]

log = logging.getLogger(__name__)


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


def encode_spans(spans: Iterable[OtlpSpan]) -> bytes:
    """Return the body of an export of these spans."""
    resource = OtlpResource(_encode_attributes({"service.name": _AGENT, "service.version": __version__}))
    scoped = OtlpScopeSpans(OtlpScope("talaria.sessions", __version__), tuple(spans))
    return _encode(OtlpTraces((OtlpResourceSpans(resource, (scoped,)),)))


def build_spans(session: Session, trace: TurnTrace) -> list[OtlpSpan]:
    """Return the span of a turn and those of its steps; the same turn gets the same ids."""
    steps = [
        _build_model_span(trace.turn, span) if isinstance(span, ModelSpan) else _build_tool_span(trace.turn, span)
        for span in trace.spans
    ]
    return [_build_turn_span(session, trace), *steps]


def _build_turn_span(session: Session, trace: TurnTrace) -> OtlpSpan:
    turn = trace.turn
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": _AGENT,
        "gen_ai.conversation.id": session.id,
        "talaria.session.source": session.source,
        "talaria.turn.id": turn.id,
        "talaria.turn.state": turn.state,
        **_build_usage_attributes(trace.usage),
    }
    return OtlpSpan(
        trace_id=_digest(turn.id, 16),
        span_id=_digest(turn.id, 8),
        name=f"invoke_agent {_AGENT}",
        kind=_INTERNAL,
        start_time_unix_nano=_to_nanoseconds(turn.started_at),
        end_time_unix_nano=_to_nanoseconds(trace.ended_at),
        attributes=_encode_attributes(attributes),
        status=OtlpStatus(_ERROR if turn.state == "failed" else _OK),
    )


def _build_model_span(turn: Turn, span: ModelSpan) -> OtlpSpan:
    first = {} if span.first_text_seconds is None else {"talaria.first_text.seconds": span.first_text_seconds}
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": span.model,
        **_build_usage_attributes(span.usage),
        **first,
    }
    return _build_step_span(turn, span, f"chat {span.model}", attributes)


def _build_tool_span(turn: Turn, span: ToolSpan) -> OtlpSpan:
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": span.name,
        "gen_ai.tool.call.id": span.call_id,
        "gen_ai.tool.type": "function",
        "talaria.tool.arguments.size": span.arguments_size,
        "talaria.tool.result.size": span.result_size,
        **({} if span.state == "ok" else {"error.type": span.state}),
    }
    return _build_step_span(turn, span, f"execute_tool {span.name}", attributes)


def _build_step_span(turn: Turn, span: Span, name: str, attributes: Attributes) -> OtlpSpan:
    return OtlpSpan(
        trace_id=_digest(turn.id, 16),
        span_id=_digest(f"{turn.id}:{span.number}", 8),
        parent_span_id=_digest(turn.id, 8),
        name=name,
        kind=_CLIENT if isinstance(span, ModelSpan) else _INTERNAL,
        start_time_unix_nano=_to_nanoseconds(span.started_at),
        end_time_unix_nano=_to_nanoseconds(span.ended_at),
        attributes=_encode_attributes(attributes),
        status=OtlpStatus(_ERROR if "error.type" in attributes else _OK),
    )


def _build_usage_attributes(usage: Usage) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "talaria.cost.microdollars": usage.cost_microdollars,
    }


def _encode_attributes(values: Attributes) -> tuple[OtlpAttribute, ...]:
    return tuple(OtlpAttribute(key, _encode_value(value)) for key, value in values.items())


def _encode_value(value: str | float) -> OtlpValue:
    match value:
        case str():
            return OtlpValue(string_value=value)
        case int():
            return OtlpValue(int_value=str(value))
        case _:
            return OtlpValue(double_value=value)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _to_nanoseconds(moment: datetime) -> str:
    return str((moment - _EPOCH) // _MICROSECOND * 1000)


class ExportRetryPolicy(Struct, frozen=True, kw_only=True):
    """Time-outs and attempts for a collector; a wait that it asks for is bounded too."""

    attempts: int = 4
    first_wait: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)
    answer: timedelta = timedelta(seconds=10)
    closing: timedelta = timedelta(seconds=3)


class FinishedTurn(Struct, frozen=True):
    """The exported part of a turn."""

    session: Session
    turn: Turn
    steps: Sequence[Step]


class TurnExporter:
    """A queue of finished turns for a collector; a full queue or an unresponsive collector loses turns, not time.

    `run_exporter` runs one. ``endpoint`` is the collector's URL, with or without ``/v1/traces``.
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        post: HttpPost,
        patience: ExportRetryPolicy | None = None,
    ) -> None:
        base = endpoint.rstrip("/")
        self._url = base if base.endswith(_PATH) else base + _PATH
        self._headers = {**headers, "Content-Type": "application/json"}
        self._http_post = post
        self._patience = patience or ExportRetryPolicy()
        self._queue: asyncio.Queue[FinishedTurn] = asyncio.Queue(_TURNS_WAITING)
        self._open = True

    def queue_turn(self, session: Session, turn: Turn, steps: Sequence[Step]) -> None:
        """Queue a turn; returns at once."""
        if not self._open:
            return
        try:
            self._queue.put_nowait(FinishedTurn(session, turn, steps))
        except asyncio.QueueFull:
            log.warning("telemetry: the collector is too slow; dropping the trace of turn %s", turn.id)

    async def serve(self) -> None:
        """Send queued turns until cancelled."""
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < _TURNS_AT_ONCE:
                batch.append(self._queue.get_nowait())
            try:
                await self._send(encode_spans(span for one in batch for span in _build_spans(one)))
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def close(self) -> None:
        """Accept nothing more, and wait briefly for the rest."""
        self._open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.closing.total_seconds()):
                await self._queue.join()

    async def _send(self, body: bytes) -> None:
        wait = self._patience.first_wait
        for attempt in range(1, self._patience.attempts + 1):
            problem, asked = await self._post(body)
            if asked is None or attempt == self._patience.attempts:
                break
            await asyncio.sleep(min(max(wait, asked), self._patience.longest_wait).total_seconds())
            wait *= 2
        if problem:
            log.warning("telemetry: dropping a trace: %s", problem)

    async def _post(self, body: bytes) -> tuple[str, timedelta | None]:
        """Return the error, if any, and the minimum wait if another attempt makes sense."""
        try:
            async with asyncio.timeout(self._patience.answer.total_seconds()):
                status, headers = await self._http_post(self._url, body, self._headers)
        except ValueError:
            return "the collector's URL or one of its headers is invalid", None
        except (ProviderError, TimeoutError) as error:
            return f"the collector doesn't answer ({type(error).__name__})", timedelta()
        if status < _REDIRECTED:
            return "", None
        retry_after = _retry_after(headers) if status in _RETRYABLE_STATUSES else None
        return f"the collector answered {status}", retry_after


@asynccontextmanager
async def run_exporter(
    endpoint: str, headers: Mapping[str, str], post: HttpPost, patience: ExportRetryPolicy | None = None
) -> AsyncIterator[TurnExporter]:
    """Run an exporter within the block; at its end queued turns have a few seconds to be sent."""
    exporter = TurnExporter(endpoint, headers, post, patience)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(exporter.serve())
        try:
            yield exporter
        finally:
            await exporter.close()
            serving.cancel()


def _build_spans(finished: FinishedTurn) -> list[OtlpSpan]:
    turn = finished.turn
    try:
        return build_spans(finished.session, read_turn(turn, finished.steps, turn.ended_at or turn.started_at))
    except msgspec.MsgspecError:
        log.warning("telemetry: can't read the steps of turn %s", turn.id)
        return []


def _retry_after(headers: Mapping[str, str]) -> timedelta:
    asked = headers.get("retry-after", "")
    return timedelta(seconds=int(asked)) if asked.isascii() and asked.isdecimal() and len(asked) < 6 else timedelta()


class TurnExportListener:
    """The turn listener that passes each finished turn of a session to an exporter; implements `TurnListener`."""

    def __init__(self, session: Session, exporter: TurnExporter) -> None:
        self._session = session
        self._exporter = exporter

    def turn_ended(self, tx: Transaction, result: TurnResult) -> AfterCommit | None:
        """Queue the turn for export after the commit."""
        for turn in tx.turns.find(self._session.id, limit=1):
            if turn.id == result.turn_id:
                return partial(self._exporter.queue_turn, self._session, turn, tx.turns.steps(turn.id))
        return None
