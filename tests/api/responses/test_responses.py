"""`/v1/responses` with OpenAI's client."""

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.api.server_process import PATIENCE, Server, client

from talaria.testing.model_server import Ask, Fail, ModelServer, Received, Say

_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_LOOK = Say("Let me look.", calls=[Ask("terminal", {"command": "echo seen"})])


def _history(received: Received) -> list[tuple[str, Any]]:
    """Return roles and contents of a model call, without the instructions."""
    return [(one["role"], one.get("content")) for one in _sent(received)[1:]]


def _sent(received: Received) -> list[Any]:
    messages: list[Any] = received.json["messages"]
    return messages


async def test_plain_response_has_text_status_and_usage(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say("Good day."))
    response = await sdk.responses.create(model="talaria", input="Hello", metadata={"a": "b"})
    assert response.output_text == "Good day."
    assert (response.status, response.model, response.metadata) == ("completed", "talaria", {"a": "b"})
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


async def test_synchronous_openai_client_is_answered(server: Server, model: ModelServer) -> None:
    model.script(Say("One."), Say("Two words."))

    def ask() -> tuple[str, list[str]]:
        with OpenAI(base_url=f"{server.url}/v1", api_key=server.key, timeout=PATIENCE, max_retries=0) as sdk:
            plain = sdk.responses.create(model="talaria", input="Hello").output_text
            with sdk.responses.stream(model="talaria", input="Hello") as stream:
                deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
                assert stream.get_final_response().output_text == "Two words."
        return plain, deltas

    plain, deltas = await asyncio.to_thread(ask)
    assert plain == "One."
    assert "".join(deltas) == "Two words."


async def test_stream_with_a_tool_call_is_parsed_by_the_client(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(_LOOK, Say("Seen."))
    async with sdk.responses.stream(model="talaria", input="Look.") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    names = [event.type for event in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in final.output] == ["message", "mcp_call", "message"]
    last = final.output[-1]
    assert last.type == "message"
    assert last.phase == "final_answer"


async def test_reasoning_is_included_only_on_request(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.otherwise(Say("Yes.", reasoning="Is it so?"))
    response = await sdk.responses.create(model="talaria", input="So?", reasoning={"summary": "auto"})
    assert [item.type for item in response.output] == ["reasoning", "message"]
    without = await sdk.responses.create(model="talaria", input="So?")
    assert [item.type for item in without.output] == ["message"]


async def test_response_continues_from_the_previous_response(sdk: AsyncOpenAI, model: ModelServer) -> None:
    first = await sdk.responses.create(model="talaria", input="One", instructions="Be brief.")
    second = await sdk.responses.create(model="talaria", input="Two", previous_response_id=first.id)
    await sdk.responses.create(model="talaria", input="Three", previous_response_id=second.id)
    assert _history(model.received[-1]) == [
        ("user", "One"),
        ("assistant", "ok"),
        ("user", "Two"),
        ("assistant", "ok"),
        ("user", "Three"),
    ]
    systems = {str(_sent(one)[0]) for one in model.received}
    assert len(systems) == 1
    assert "Be brief." in systems.pop()
    assert second.previous_response_id == first.id


async def test_responses_continuing_from_the_same_response_are_separate(sdk: AsyncOpenAI, model: ModelServer) -> None:
    first = await sdk.responses.create(model="talaria", input="One")
    requests = [sdk.responses.create(model="talaria", input=text, previous_response_id=first.id) for text in "AB"]
    await asyncio.gather(*requests)
    again = await sdk.responses.create(model="talaria", input="C", previous_response_id=first.id)
    assert again.status == "completed"
    histories = sorted(str(_history(one)) for one in model.received[1:])
    assert histories == [str([("user", "One"), ("assistant", "ok"), ("user", text)]) for text in "ABC"]


async def test_later_instructions_do_not_change_the_earlier_prefix(sdk: AsyncOpenAI, model: ModelServer) -> None:
    first = await sdk.responses.create(model="talaria", input="One", instructions="Be brief.")
    await sdk.responses.create(model="talaria", input="Two", instructions="Be long.", previous_response_id=first.id)
    assert _sent(model.received[1])[:3] == [
        *_sent(model.received[0]),
        {"role": "assistant", "content": "ok"},
    ]
    assert _history(model.received[1])[2:] == [("system", "Be long."), ("user", "Two")]


async def test_a_named_conversation_continues(sdk: AsyncOpenAI, model: ModelServer) -> None:
    for text in ("One", "Two"):
        response = await sdk.responses.create(model="talaria", input=text, conversation="trip")
        assert response.conversation is not None
        assert response.conversation.id == "trip"
    await sdk.responses.create(model="talaria", input="Three", conversation={"id": "trip"})
    assert [text for role, text in _history(model.received[-1]) if role == "user"] == ["One", "Two", "Three"]
    await sdk.responses.create(model="talaria", input="Four", conversation="another")
    assert _history(model.received[-1]) == [("user", "Four")]


async def test_items_become_a_transcript_with_its_roles(sdk: AsyncOpenAI, model: ModelServer) -> None:
    picture = base64.b64encode(_PNG).decode()
    await sdk.responses.create(
        model="talaria",
        input=[
            {"role": "developer", "content": "Speak French."},
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": "Un"},
            {"role": "user", "content": [{"type": "input_text", "text": "And this?"}]},
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{picture}", "detail": "auto"}],
            },
        ],
    )
    (received,) = model.received
    assert "Speak French." in str(_sent(received)[0])
    history = _history(received)
    assert history[:2] == [("user", "One"), ("assistant", "Un")]
    assert "And this?" in str(history[2])


async def test_files_are_stored_for_the_agent(sdk: AsyncOpenAI, model: ModelServer) -> None:
    data = f"data:text/csv;base64,{base64.b64encode(b'a,b').decode()}"
    named = {"filename": "../sums.csv", "file_data": data}
    item: Any = {"role": "user", "content": [{"type": "input_file", **named}]}
    message: Any = {"role": "user", "content": [{"type": "file", "file": named}]}
    await sdk.responses.create(model="talaria", input=[item])
    await sdk.chat.completions.create(model="talaria", messages=[message])
    for received in model.received:
        found = re.search(r"\[file sums\.csv \(text/csv\) (/[^\]]+/sums\.csv)\]", str(_history(received)))
        assert found is not None
        assert await asyncio.to_thread(Path(found[1]).read_bytes) == b"a,b"
    with pytest.raises(openai.BadRequestError, match="file_data"):
        await sdk.responses.create(
            model="talaria", input=[{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]
        )


async def test_items_of_a_response_can_be_referenced_as_input(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(_LOOK, Say("Seen."))
    first = await sdk.responses.create(model="talaria", input="Look.")
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
    again: list[Any] = [item.model_dump(exclude_none=True) for item in first.output]
    for past in (references, again):
        await sdk.responses.create(model="talaria", input=[*past, {"role": "user", "content": "And?"}])
        history = str(_history(model.received[-1]))
        assert "Seen." in history
        assert "seen" in history
        assert "And?" in history


async def test_response_can_be_retrieved_until_it_is_deleted(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(_LOOK, Say("Seen."))
    first = await sdk.responses.create(model="talaria", input="Look.")
    assert (await sdk.responses.retrieve(first.id)).model_dump() == first.model_dump()
    items = await sdk.responses.input_items.list(first.id)
    (item,) = items.data
    assert item.type == "message"
    await sdk.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.create(model="talaria", input="On.", previous_response_id=first.id)


async def test_a_streamed_response_is_stored_as_it_was_sent(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(_LOOK, Say("Seen."))
    async with sdk.responses.stream(model="talaria", input="Look.") as stream:
        final = await stream.get_final_response()
    stored = await sdk.responses.retrieve(final.id)
    assert [item.type for item in stored.output] == [item.type for item in final.output]
    assert (stored.output_text, stored.usage, stored.completed_at) == (
        final.output_text,
        final.usage,
        final.completed_at,
    )


async def test_a_response_with_store_off_is_not_stored(sdk: AsyncOpenAI) -> None:
    response = await sdk.responses.create(model="talaria", input="Hello", store=False)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(response.id)


async def test_disconnected_client_stops_the_turn(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say("and so on " * 300, pause=0.05))
    stream = await sdk.responses.create(model="talaria", input="Go.", stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    async with asyncio.timeout(PATIENCE):
        await model.gone()


async def test_a_model_failure_is_reported_with_and_without_streaming(sdk: AsyncOpenAI, model: ModelServer) -> None:
    model.otherwise(Fail(400, message="nonsense"))
    with pytest.raises(openai.InternalServerError) as failed:
        await sdk.responses.create(model="talaria", input="Hello")
    assert failed.value.code == "turn_failed"
    stream = await sdk.responses.create(model="talaria", input="Hello", stream=True)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools"),
        ({"input": "x", "text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"input": "x", "previous_response_id": "a", "conversation": "b"}, "conversation"),
        ({"input": "x", "background": True, "store": False}, "store"),
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": " \0"}]}]}, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"input": [{"type": "image_generation_call"}]}, "input[0]"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_x_0"}]}, "input[0]"),
        ({"input": 7}, "input"),
    ],
)
async def test_unsupported_parameter_is_refused_by_name(server: Server, body: dict[str, Any], param: str) -> None:
    async with client(server) as http:
        response = await http.post("/v1/responses", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), error
    assert error["type"] == "invalid_request_error"
