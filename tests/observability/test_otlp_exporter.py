"""Export of finished turns to a collector: spans, privacy, retries and bad collectors."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.observability.otlp_collector import Collector, listening
from tests.runtime.recorded_turns import TurnHistory

from talaria.contracts.stores.sessions import NewSession, Session
from talaria.contracts.stores.turns import Step, Turn
from talaria.core.events import TurnFailed
from talaria.core.messages import Usage
from talaria.http_client.client import HttpPool
from talaria.observability.otlp_exporter import ExportRetryPolicy, OtlpSpan, OtlpValue, TurnExporter, run_exporter

NOON = 1_767_355_200_000_000_000
QUICK = ExportRetryPolicy(first_wait=timedelta(milliseconds=1), longest_wait=timedelta(milliseconds=5))
USAGE = Usage(calls=1, input_tokens=1200, output_tokens=80, cache_read_tokens=1000, cost_microdollars=4_000)
Finished = tuple[Session, Turn, list[Step]]


@asynccontextmanager
async def exporting(
    endpoint: str, headers: Mapping[str, str], retries: ExportRetryPolicy | None = None
) -> AsyncIterator[TurnExporter]:
    pool = HttpPool()
    async with run_exporter(endpoint, headers, pool.send, retries) as exporter:
        yield exporter
    await pool.close()


@pytest.fixture
async def finished(tmp_path: Path) -> Finished:
    """A turn with a model call, a tool that works, one that fails and one that is interrupted."""
    new = NewSession(source="cli", title="secret title")
    async with TurnHistory(tmp_path / "talaria.db", new) as history:
        turn = await history.begin()
        await turn.model(1.5, USAGE, first=0.5)
        call = await turn.begin_tool("read_file", "secret summary", '{"path": "secret"}')
        history.wait(0.25)
        await turn.end_tool(call, "secret result")
        await turn.tool("terminal", "secret command", 1, failure="secret failure")
        await turn.begin_tool("terminal", "secret command")
        history.wait(2)
        await turn.end(TurnFailed("secret reason"))
        ((stored, steps),) = await history.turns()
        return history.session, stored, steps


async def test_turn_is_exported_as_spans_with_semantic_convention_names(finished: Finished) -> None:
    session, turn, _ = finished
    async with listening(Collector()) as collector:
        async with exporting(collector.url, {"X-Key": "k"}) as exporter:
            exporter.queue_turn(*finished)
        (request,) = collector.requests
    assert (request.content_type, request.headers["X-Key"]) == ("application/json", "k")
    root, model, read, failed, interrupted = collector.spans
    assert [span.name for span in collector.spans] == [
        "invoke_agent talaria",
        "chat large",
        "execute_tool read_file",
        "execute_tool terminal",
        "execute_tool terminal",
    ]
    assert read_attributes(root)["gen_ai.conversation.id"] == session.id
    assert (read_attributes(root)["talaria.turn.id"], read_attributes(root)["talaria.turn.state"]) == (
        turn.id,
        "failed",
    )
    attributes = read_attributes(model)
    assert (attributes["gen_ai.operation.name"], attributes["gen_ai.request.model"]) == ("chat", "large")
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (1200, 80)
    assert (attributes["gen_ai.usage.cache_read.input_tokens"], attributes["talaria.cost.microdollars"]) == (1000, 4000)
    assert attributes["talaria.first_text.seconds"] == 0.5
    assert (read_attributes(read)["gen_ai.tool.name"], read_attributes(read)["talaria.tool.arguments.size"]) == (
        "read_file",
        18,
    )
    assert [read_attributes(span).get("error.type") for span in (read, failed, interrupted)] == [
        None,
        "failed",
        "interrupted",
    ]
    assert [span.status.code for span in collector.spans] == [2, 1, 1, 2, 2]


async def test_spans_have_one_trace_parent_ids_and_times(finished: Finished) -> None:
    async with listening(Collector()) as collector, exporting(collector.url, {}) as exporter:
        exporter.queue_turn(*finished)
        exporter.queue_turn(*finished)
    first, again = collector.spans[:5], collector.spans[5:]
    assert first == again
    root, *steps = first
    assert (len(root.trace_id), len(root.span_id), root.parent_span_id) == (32, 16, "")
    assert {(span.trace_id, span.parent_span_id) for span in steps} == {(root.trace_id, root.span_id)}
    assert len({span.span_id for span in first}) == 5
    times = [(int(span.start_time_unix_nano) - NOON, int(span.end_time_unix_nano) - NOON) for span in first]
    assert [(start / 1e9, end / 1e9) for start, end in times] == [
        (0, 4.75),
        (0, 1.5),
        (1.5, 1.75),
        (1.75, 2.75),
        (2.75, 4.75),
    ]


async def test_export_uses_otlp_json(finished: Finished) -> None:
    async with listening(Collector()) as collector, exporting(f"{collector.url}/v1/traces", {}) as exporter:
        exporter.queue_turn(*finished)
    sent = msgspec.json.decode(collector.bodies[0])
    (resource,) = sent["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "talaria"}} in resource["resource"]["attributes"]
    root, model, *_ = resource["scopeSpans"][0]["spans"]
    assert "parentSpanId" not in root
    assert (root["kind"], model["kind"], model["startTimeUnixNano"]) == (1, 3, str(NOON))
    assert {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1200"}} in model["attributes"]
    assert {"key": "talaria.first_text.seconds", "value": {"doubleValue": 0.5}} in model["attributes"]


async def test_exported_spans_contain_no_content(finished: Finished) -> None:
    async with listening(Collector()) as collector, exporting(collector.url, {}) as exporter:
        exporter.queue_turn(*finished)
    assert b"secret" not in collector.bodies[0]


async def test_temporary_failures_of_the_collector_are_retried(finished: Finished) -> None:
    async with (
        listening(Collector(503, hang_up, 429)) as collector,
        exporting(collector.url, {}, QUICK) as exporter,
    ):
        exporter.queue_turn(*finished)
    assert len(collector.requests) == 4
    assert len(set(collector.bodies)) == 1


@pytest.mark.parametrize(("status", "attempts"), [(503, 4), (400, 1), (302, 1), (500, 1)])
async def test_dropped_trace_is_logged_after_the_last_attempt(
    finished: Finished, status: int, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        listening(Collector(*[status] * 4)) as collector,
        exporting(collector.url, {"Authorization": "Bearer hush"}, QUICK) as exporter,
    ):
        exporter.queue_turn(*finished)
    assert len(collector.requests) == attempts
    (record,) = caplog.records
    assert record.getMessage() == f"telemetry: dropping a trace: the collector answered {status}"


@pytest.mark.parametrize(
    ("endpoint", "headers"),
    [("http://127.0.0.1:1", {}), ("http://", {}), ("http://127.0.0.1:1", {"X-Key": "a\nb"}), ("no address", {})],
)
async def test_unusable_endpoint_or_header_is_logged(
    finished: Finished, endpoint: str, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with exporting(endpoint, headers, QUICK) as exporter:
        exporter.queue_turn(*finished)
    assert "dropping a trace" in caplog.text


async def test_silent_collector_does_not_block_turns_or_shutdown(
    finished: Finished, caplog: pytest.LogCaptureFixture
) -> None:
    requested, never = asyncio.Event(), asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        requested.set()
        await never.wait()
        return web.Response()

    retries = ExportRetryPolicy(closing=timedelta(milliseconds=10))
    async with listening(Collector(hang)) as collector:
        async with exporting(collector.url, {}, retries) as exporter:
            exporter.queue_turn(*finished)
            await requested.wait()
            for _ in range(300):
                exporter.queue_turn(*finished)
        never.set()
    assert sum("the collector is too slow" in record.message for record in caplog.records) == 300 - 256


async def test_waiting_turns_are_sent_in_one_request(finished: Finished) -> None:
    may_answer = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await may_answer.wait()
        return web.Response(text="{}")

    async with listening(Collector(slow)) as collector, exporting(collector.url, {}) as exporter:
        for _ in range(50):
            exporter.queue_turn(*finished)
        may_answer.set()
    assert len(collector.requests) == 2
    assert len(collector.spans) == 50 * 5


async def test_unreadable_steps_do_not_block_other_turns(finished: Finished, caplog: pytest.LogCaptureFixture) -> None:
    session, turn, steps = finished
    broken = msgspec.structs.replace(steps[0], result="{")
    async with listening(Collector()) as collector, exporting(collector.url, {}) as exporter:
        exporter.queue_turn(session, turn, [broken])
        exporter.queue_turn(*finished)
    assert len(collector.spans) == 5
    assert "can't read" in caplog.text


async def test_turn_finished_after_shutdown_is_ignored(finished: Finished) -> None:
    async with listening(Collector()) as collector:
        async with exporting(collector.url, {}) as exporter:
            assert isinstance(exporter, TurnExporter)
        exporter.queue_turn(*finished)
    assert collector.requests == []


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def read_attributes(span: OtlpSpan) -> dict[str, Any]:
    return {attribute.key: read_value(attribute.value) for attribute in span.attributes}


def read_value(value: OtlpValue) -> str | int | float | None:
    if value.int_value is not None:
        return int(value.int_value)
    return value.string_value if value.string_value is not None else value.double_value
