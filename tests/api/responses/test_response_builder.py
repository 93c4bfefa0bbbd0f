"""What happens in a turn becomes a response of which the official client understands every event."""

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


def _told(*happened: TurnEvent) -> list[RunEvent]:
    telling = RunEventMapper()
    told: list[RunEvent] = []
    for event in happened:
        told += telling.tell(event)
        if isinstance(event, TurnEnd):
            told.append(to_run_end(event))
    return told


def _composed(told: list[RunEvent], *, thoughts: bool = False) -> tuple[ResponseBuilder, list[ResponseEvent]]:
    composition = ResponseBuilder(_response(), thoughts=thoughts)
    return composition, [one for event in told for one in composition.take(event, _AT)]


def _checked(composed: list[ResponseEvent]) -> list[str]:
    """Return the names of the events, each read by the official client's own types, strictly."""
    for number, event in enumerate(composed):
        official = _official.validate_json(msgspec.json.encode(event))
        assert official.type == get_event_name(event)
        assert official.sequence_number == number
    return [get_event_name(event).removeprefix("response.") for event in composed]


def test_a_plain_answer_has_the_sequence_of_events_that_clients_expect() -> None:
    composition, composed = _composed(_told(_BEGAN, TextAdded("Hel"), TextAdded("lo"), TurnAnswered("Hello")))
    assert _checked(composed) == [
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
    official = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response))
    assert official.output_text == "Hello"
    assert official.status == "completed"
    assert official.output[0].id == "msg_x_0"


def test_a_tool_of_the_agent_is_an_item_that_no_client_has_to_answer() -> None:
    composition, composed = _composed(_told(*_WITH_A_TOOL))
    names = _checked(composed)
    assert names[names.index("mcp_call.in_progress") - 1 :][:6] == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    official = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response))
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
    composition, _ = _composed(_told(*_WITH_A_TOOL))
    official = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response))
    assert official.usage is not None
    assert (official.usage.input_tokens, official.usage.output_tokens, official.usage.total_tokens) == (30, 6, 36)
    assert official.usage.input_tokens_details.cached_tokens == 3
    assert official.usage.output_tokens_details.reasoning_tokens == 1


def test_thoughts_are_reported_only_where_they_were_asked_for() -> None:
    composition, composed = _composed(_told(*_WITH_A_TOOL), thoughts=True)
    names = _checked(composed)
    assert names.count("reasoning_summary_text.delta") == 2
    official = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response))
    first = official.output[0]
    assert first.type == "reasoning"
    assert first.summary[0].text == "A clock is needed."
    _, without = _composed(_told(*_WITH_A_TOOL))
    assert not [name for name in _checked(without) if "reasoning" in name]


def test_a_tool_that_fails_says_why() -> None:
    told = _told(
        _BEGAN, ToolCalled(_CALL, "x"), ToolAnswered(ToolResult("call_1", "No.", failed=True), "terminal", 0.1)
    )
    composition, composed = _composed([*told, *_told(TurnAnswered("Sorry."))])
    assert "mcp_call.failed" in _checked(composed)
    use = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response)).output[0]
    assert use.type == "mcp_call"
    assert use.status == "failed"
    assert "No." in str(use.error)


def test_a_call_of_which_nobody_hears_again_is_cut_off_when_the_model_speaks() -> None:
    told = _told(_BEGAN, ToolCalled(_CALL, "x"), TextAdded("Well."), TurnAnswered("Well."))
    composition, composed = _composed(told)
    _checked(composed)
    use = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response)).output[0]
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
def test_other_ends_are_reported_as_such(end: TurnEnd, status: str, name: str) -> None:
    composition, composed = _composed(_told(_BEGAN, TextAdded("So"), end))
    assert _checked(composed)[-1] == name
    official = OfficialResponse.model_validate_json(msgspec.json.encode(composition.response))
    assert official.status == status
    assert official.output[0].type == "message"
    assert "/retry" not in str(composed), "no command can be typed here"


def test_an_answer_without_any_piece_before_it_is_reported_whole() -> None:
    composition, composed = _composed(_told(_BEGAN, TurnAnswered("Done before.")))
    assert _checked(composed).count("output_text.delta") == 1
    assert OfficialResponse.model_validate_json(msgspec.json.encode(composition.response)).output_text == "Done before."


def test_what_continues_after_a_crash_repeats_no_words_that_stay_the_same() -> None:
    telling = RunEventMapper()
    told = [one for event in (_BEGAN, TextAdded("One two")) for one in telling.tell(event)]
    again = RunEventMapper()
    again.recall(told)
    told += [*again.restart(), TurnResumed("t1")]
    told += [one for event in (TextAdded("One "), TextAdded("two three")) for one in again.tell(event)]
    told += [*again.tell(TurnAnswered("One two three")), to_run_end(TurnAnswered("One two three"))]
    composition, composed = _composed(told)
    deltas = [
        msgspec.to_builtins(one)["delta"] for one in composed if get_event_name(one).endswith("output_text.delta")
    ]
    assert deltas == ["One two", " three"]
    assert len(composition.response.output) == 1


def test_words_that_come_out_otherwise_after_a_crash_are_right_in_the_end() -> None:
    told = [RunQueued("s"), *_told(_BEGAN, TextAdded("One")), TurnResumed("t1")]
    told += _told(TextAdded("Two"), TurnAnswered("Two"))
    composition, composed = _composed(told)
    names = _checked(composed)
    assert names[:3] == ["created", "queued", "in_progress"]
    assert OfficialResponse.model_validate_json(msgspec.json.encode(composition.response)).output_text == "Two"


def test_the_same_events_make_the_same_numbers() -> None:
    told = _told(*_WITH_A_TOOL)
    _, once = _composed(told)
    _, twice = _composed(told)
    assert once == twice
