"""Events of a turn become a response whose events OpenAI's client can parse."""

import msgspec
import pytest
from openai.types.responses import Response as OfficialResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from talaria.api.responses.builder import ResponseBuilder
from talaria.api.responses.wire import Response, ResponseEvent, get_event_name
from talaria.api.runs.events import INTERRUPTED, RunEvent, RunEventMapper, RunQueued, TurnResumed, to_run_end
from talaria.core.events import (
    ModelCalled,
    ReasoningAdded,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    TurnAnswered,
    TurnBegan,
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.ids import TurnId
from talaria.core.messages import ToolCall, ToolResult, Usage

_AT = 1_800_000_000.0
_official: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
_BEGAN = TurnBegan(TurnId("t1"))
_CALL = ToolCall("call_1", "terminal", '{"command": "date"}')
_WITH_A_TOOL: tuple[TurnEvent, ...] = (
    _BEGAN,
    ReasoningAdded("A clock "),
    ReasoningAdded("is needed."),
    TextAdded("Let me "),
    TextAdded("look."),
    ModelCalled("m", Usage(calls=1, input_tokens=10, output_tokens=4, cache_read_tokens=3), 14, 1000),
    ToolCalled(_CALL, "terminal: date"),
    ToolAnswered(ToolResult("call_1", "It is noon."), "terminal", 0.1),
    TextAdded("Noon."),
    ModelCalled("m", Usage(calls=1, input_tokens=20, output_tokens=2, reasoning_tokens=1), 22, 1000),
    TurnAnswered("Noon."),
)


def _response() -> Response:
    return Response(id="resp_x", created_at=_AT, model="talaria", status="in_progress")


def _run_events(*happened: TurnEvent) -> list[RunEvent]:
    telling = RunEventMapper()
    told: list[RunEvent] = []
    for event in happened:
        told += telling.map_event(event)
        if isinstance(event, TurnEnd):
            told.append(to_run_end(event))
    return told


def _build(told: list[RunEvent], *, thoughts: bool = False) -> tuple[ResponseBuilder, list[ResponseEvent]]:
    builder = ResponseBuilder(_response(), thoughts=thoughts)
    return builder, [one for event in told for one in builder.take(event, _AT)]


def _check(events: list[ResponseEvent]) -> list[str]:
    """Return the names of the events, each read by the official client's own types, strictly."""
    for number, event in enumerate(events):
        official = _official.validate_json(msgspec.json.encode(event))
        assert official.type == get_event_name(event)
        assert official.sequence_number == number
    return [get_event_name(event).removeprefix("response.") for event in events]


def test_plain_answer_has_the_event_sequence_that_clients_expect() -> None:
    builder, events = _build(_run_events(_BEGAN, TextAdded("Hel"), TextAdded("lo"), TurnAnswered("Hello")))
    assert _check(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    official = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response))
    assert official.output_text == "Hello"
    assert official.status == "completed"
    assert official.output[0].id == "msg_x_0"


def test_tool_call_of_the_agent_becomes_an_mcp_call_item() -> None:
    builder, events = _build(_run_events(*_WITH_A_TOOL))
    names = _check(events)
    assert names[names.index("mcp_call.in_progress") - 1 :][:6] == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    official = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response))
    assert [item.type for item in official.output] == ["message", "mcp_call", "message"]
    use = official.output[1]
    assert use.type == "mcp_call"
    assert (use.name, use.arguments, use.output, use.server_label) == (
        "terminal",
        '{"command": "date"}',
        "It is noon.",
        "talaria",
    )
    last = official.output[-1]
    assert last.type == "message"
    assert last.phase == "final_answer"


def test_usage_is_the_sum_of_all_model_calls() -> None:
    builder, _ = _build(_run_events(*_WITH_A_TOOL))
    official = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response))
    assert official.usage is not None
    assert (official.usage.input_tokens, official.usage.output_tokens, official.usage.total_tokens) == (30, 6, 36)
    assert official.usage.input_tokens_details.cached_tokens == 3
    assert official.usage.output_tokens_details.reasoning_tokens == 1


def test_reasoning_is_included_only_on_request() -> None:
    builder, events = _build(_run_events(*_WITH_A_TOOL), thoughts=True)
    names = _check(events)
    assert names.count("reasoning_summary_text.delta") == 2
    official = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response))
    first = official.output[0]
    assert first.type == "reasoning"
    assert first.summary[0].text == "A clock is needed."
    _, without = _build(_run_events(*_WITH_A_TOOL))
    assert not [name for name in _check(without) if "reasoning" in name]


def test_failed_tool_call_has_its_error() -> None:
    told = _run_events(
        _BEGAN, ToolCalled(_CALL, "x"), ToolAnswered(ToolResult("call_1", "No.", failed=True), "terminal", 0.1)
    )
    builder, events = _build([*told, *_run_events(TurnAnswered("Sorry."))])
    assert "mcp_call.failed" in _check(events)
    use = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response)).output[0]
    assert use.type == "mcp_call"
    assert use.status == "failed"
    assert "No." in str(use.error)


def test_tool_call_without_a_result_is_marked_interrupted() -> None:
    told = _run_events(_BEGAN, ToolCalled(_CALL, "x"), TextAdded("Well."), TurnAnswered("Well."))
    builder, events = _build(told)
    _check(events)
    use = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response)).output[0]
    assert use.type == "mcp_call"
    assert INTERRUPTED in str(use.error)


@pytest.mark.parametrize(
    ("end", "status", "name"),
    [
        (TurnFailed("The model is busy.", passing=True), "failed", "failed"),
        (TurnStopped(), "cancelled", "incomplete"),
        (TurnOutOfBudget("time", "I stopped."), "incomplete", "incomplete"),
    ],
)
def test_failed_stopped_and_limited_turns_have_their_status(end: TurnEnd, status: str, name: str) -> None:
    builder, events = _build(_run_events(_BEGAN, TextAdded("So"), end))
    assert _check(events)[-1] == name
    official = OfficialResponse.model_validate_json(msgspec.json.encode(builder.response))
    assert official.status == status
    assert official.output[0].type == "message"
    assert "/retry" not in str(events), "clients of the API cannot type commands"


def test_answer_without_earlier_text_events_is_sent_as_one_delta() -> None:
    builder, events = _build(_run_events(_BEGAN, TurnAnswered("Done before.")))
    assert _check(events).count("output_text.delta") == 1
    assert OfficialResponse.model_validate_json(msgspec.json.encode(builder.response)).output_text == "Done before."


def test_resumed_response_does_not_repeat_unchanged_text() -> None:
    telling = RunEventMapper()
    told = [one for event in (_BEGAN, TextAdded("One two")) for one in telling.map_event(event)]
    again = RunEventMapper()
    again.recall(told)
    told += [*again.restart(), TurnResumed("t1")]
    told += [one for event in (TextAdded("One "), TextAdded("two three")) for one in again.map_event(event)]
    told += [*again.map_event(TurnAnswered("One two three")), to_run_end(TurnAnswered("One two three"))]
    builder, events = _build(told)
    deltas = [msgspec.to_builtins(one)["delta"] for one in events if get_event_name(one).endswith("output_text.delta")]
    assert deltas == ["One two", " three"]
    assert len(builder.response.output) == 1


def test_resumed_response_with_different_text_ends_with_the_final_text() -> None:
    told = [RunQueued("s"), *_run_events(_BEGAN, TextAdded("One")), TurnResumed("t1")]
    told += _run_events(TextAdded("Two"), TurnAnswered("Two"))
    builder, events = _build(told)
    names = _check(events)
    assert names[:3] == ["created", "queued", "in_progress"]
    assert OfficialResponse.model_validate_json(msgspec.json.encode(builder.response)).output_text == "Two"


def test_same_run_events_give_the_same_response_events() -> None:
    told = _run_events(*_WITH_A_TOOL)
    _, once = _build(told)
    _, twice = _build(told)
    assert once == twice
