"""The scripted model server with the official OpenAI client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam, ResponseStreamEvent

from talaria.testing.model_server import (
    Answer,
    Ask,
    Collapse,
    CutOff,
    Fail,
    Garbage,
    ModelServer,
    Say,
    Silence,
    Tokens,
    bad_key,
    context_too_long,
    model_unknown,
    no_credit,
    overloaded,
    refused,
)

MODEL = "test-model"
Asking = Callable[[AsyncOpenAI], Awaitable[str | None]]
PARAMETERS: dict[str, object] = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT_TOOL: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {"name": "read_file", "parameters": PARAMETERS},
}
RESPONSES_TOOL: FunctionToolParam = {
    "type": "function",
    "name": "read_file",
    "parameters": PARAMETERS,
    "strict": False,
}
TWO_CALLS = Say(
    "Let me look.",
    calls=[Ask("read_file", {"path": "notes/one.txt"}), Ask("read_file", {"path": "notes/two.txt"}, id="call_two")],
)
USED = Tokens(input=100, output=20, cache_read=60, cache_write=5, reasoning=7)


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0, timeout=20) as client:
        yield client


async def chat(client: AsyncOpenAI) -> str | None:
    done = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    return done.choices[0].message.content


async def respond(client: AsyncOpenAI) -> str:
    return (await client.responses.create(model=MODEL, input="hi")).output_text


async def test_plain_chat_reply_has_text_and_usage(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Say("Hello there", usage=USED))
    done = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    assert done.choices[0].message.content == "Hello there"
    assert (done.choices[0].finish_reason, done.model, done.object) == ("stop", MODEL, "chat.completion")
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (165, 20, 185)
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 60
    assert done.usage.completion_tokens_details is not None
    assert done.usage.completion_tokens_details.reasoning_tokens == 7


def test_blocking_client_gets_replies() -> None:
    def ask(url: str) -> tuple[str | None, str]:
        with OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0, timeout=20) as client:
            done = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
            with client.responses.stream(model=MODEL, input="hi") as stream:
                return done.choices[0].message.content, stream.get_final_response().output_text

    async def run() -> tuple[str | None, str]:
        async with ModelServer() as server:
            server.script(Say("first"), Say("second"))
            return await asyncio.to_thread(ask, server.url)

    assert asyncio.run(run()) == ("first", "second")


async def test_streamed_chat_reply_has_reasoning_and_usage(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Say("One two three", reasoning="I count.", usage=USED))
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "count"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert [delta.content for delta in deltas if delta.content] == ["One", " two", " three"]
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "I count."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 165
    assert len({chunk.id for chunk in chunks}) == 1


async def test_chat_stream_has_usage_only_if_requested(server: ModelServer, client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
    )
    assert [chunk.usage async for chunk in stream if chunk.usage or not chunk.choices] == []


async def test_chat_tool_calls_are_returned_and_their_results_accepted(
    server: ModelServer, client: AsyncOpenAI
) -> None:
    server.script(TWO_CALLS, Say("Both are empty."))
    first = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "read"}], tools=[CHAT_TOOL]
    )
    calls = first.choices[0].message.tool_calls or []
    assert first.choices[0].finish_reason == "tool_calls"
    assert [call.function.arguments for call in calls if call.type == "function"] == [
        '{"path":"notes/one.txt"}',
        '{"path":"notes/two.txt"}',
    ]
    assert calls[0].id.startswith("call_")
    assert calls[1].id == "call_two"
    second = await client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "user", "content": "read"},
            first.choices[0].message.to_dict(),  # type: ignore[list-item]  # the SDK accepts its own output
            {"role": "tool", "tool_call_id": calls[0].id, "content": ""},
            {"role": "tool", "tool_call_id": calls[1].id, "content": ""},
        ],
    )
    assert second.choices[0].message.content == "Both are empty."


async def test_parallel_chat_tool_calls_are_assembled_from_a_stream(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(TWO_CALLS)
    async with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "read"}], tools=[CHAT_TOOL]
    ) as stream:
        kinds = [event.type async for event in stream]
        message = (await stream.get_final_completion()).choices[0].message
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert kinds.count("tool_calls.function.arguments.delta") > 2
    assert message.content == "Let me look."
    arguments = [call.function.arguments for call in message.tool_calls or []]
    assert arguments == ['{"path":"notes/one.txt"}', '{"path":"notes/two.txt"}']


async def test_plain_response_has_text_reasoning_and_usage(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Say("Hello there", reasoning="Greet back.", usage=USED))
    done = await client.responses.create(model=MODEL, input="hi", include=["reasoning.encrypted_content"])
    assert (done.output_text, done.status) == ("Hello there", "completed")
    assert [item.type for item in done.output] == ["reasoning", "message"]
    assert done.output[0].type == "reasoning"
    assert done.output[0].summary[0].text == "Greet back."
    assert done.output[0].encrypted_content
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens) == (165, 20, 185)
    assert done.usage.input_tokens_details.cached_tokens == 60
    assert done.usage.output_tokens_details.reasoning_tokens == 7


async def test_streamed_response_events_are_in_the_right_order(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Say("Hello there", reasoning="Greet", calls=[Ask("read_file", "{}")]))
    stream = await client.responses.create(model=MODEL, input="hi", stream=True)
    events: list[ResponseStreamEvent] = [event async for event in stream]
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello there"
    assert last.response.usage is not None


async def test_response_function_calls_are_returned_and_their_outputs_accepted(
    server: ModelServer, client: AsyncOpenAI
) -> None:
    server.script(TWO_CALLS, Say("Both are empty."))
    async with client.responses.stream(model=MODEL, input="read", tools=[RESPONSES_TOOL]) as stream:
        first = await stream.get_final_response()
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == ['{"path":"notes/one.txt"}', '{"path":"notes/two.txt"}']
    turn: list[ResponseInputItemParam] = [{"role": "user", "content": "read"}]
    for call in calls:
        turn.append({"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments})
        turn.append({"type": "function_call_output", "call_id": call.call_id, "output": ""})
    second = await client.responses.create(model=MODEL, input=turn)
    assert second.output_text == "Both are empty."


async def test_incomplete_reply_has_its_reason(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Say("And then", stop="length"), Say("I", stop="refused"), Say("And then", stop="length"))
    server.script(Say("I", stop="refused"))
    for reason in ("length", "content_filter"):
        done = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        assert done.choices[0].finish_reason == reason
    for reason in ("max_output_tokens", "content_filter"):
        response = await client.responses.create(model=MODEL, input="hi")
        assert response.incomplete_details is not None
        assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)


async def test_models_are_listed() -> None:
    async with (
        ModelServer(models=["small", "large"]) as server,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["small", "large"]


@pytest.mark.parametrize("ask", [chat, respond])
@pytest.mark.parametrize(
    ("trouble", "error", "code"),
    [
        (Fail(429), openai.RateLimitError, "rate_limit_exceeded"),
        (no_credit(), openai.RateLimitError, "insufficient_quota"),
        (bad_key(), openai.AuthenticationError, "invalid_api_key"),
        (context_too_long(), openai.BadRequestError, "context_length_exceeded"),
        (model_unknown(), openai.NotFoundError, "model_not_found"),
        (overloaded(), openai.InternalServerError, None),
        (Fail(500), openai.InternalServerError, None),
        (Fail(403, kind="no_access", message="Not yours."), openai.PermissionDeniedError, "no_access"),
    ],
)
async def test_errors_are_raised_as_error_types_of_the_client(
    server: ModelServer,
    client: AsyncOpenAI,
    ask: Asking,
    trouble: Answer,
    error: type[openai.APIStatusError],
    code: str | None,
) -> None:
    server.script(trouble)
    with pytest.raises(error) as raised:
        await ask(client)
    assert raised.value.code == code
    assert raised.value.request_id


@pytest.mark.parametrize("ask", [chat, respond])
async def test_a_filtered_request_is_a_bad_request(server: ModelServer, client: AsyncOpenAI, ask: Asking) -> None:
    server.script(refused())
    with pytest.raises(openai.BadRequestError) as raised:
        await ask(client)
    assert raised.value.code in {"content_filter", "invalid_prompt"}


@pytest.mark.parametrize("ask", [chat, respond])
async def test_rate_limit_has_a_retry_after_header(server: ModelServer, client: AsyncOpenAI, ask: Asking) -> None:
    server.script(Fail(429, retry_after=7))
    with pytest.raises(openai.RateLimitError) as raised:
        await ask(client)
    assert raised.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("ask", [chat, respond])
async def test_unknown_api_keys_are_refused(ask: Asking) -> None:
    async with (
        ModelServer(keys={"sk-one"}) as server,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-two", max_retries=0) as stranger,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-one", max_retries=0) as friend,
    ):
        assert await ask(friend) == "ok"
        with pytest.raises(openai.AuthenticationError):
            await ask(stranger)
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


async def test_broken_streams_raise_errors_of_the_client(server: ModelServer, client: AsyncOpenAI) -> None:
    async def stream_chat() -> None:
        messages = [{"role": "user", "content": "hi"}]
        async with client.chat.completions.stream(model=MODEL, messages=messages) as stream:  # type: ignore[arg-type]
            await stream.until_done()

    server.script(CutOff(after=2), Garbage(after=2), Collapse(after=2))
    with pytest.raises(openai.APIConnectionError):
        await stream_chat()
    with pytest.raises(ValueError, match=r"Unterminated string|Expecting"):
        await stream_chat()
    with pytest.raises(openai.APIError, match="had an error while processing"):
        await stream_chat()


async def test_response_that_fails_midway_ends_with_a_failed_event(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Collapse(after=2, fail=Fail(429)))
    events = [event async for event in await client.responses.create(model=MODEL, input="hi", stream=True)]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "rate_limit_exceeded"
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_silent_stream_raises_the_timeout_of_the_client(server: ModelServer, client: AsyncOpenAI) -> None:
    server.script(Silence(after=2))
    impatient = client.with_options(timeout=1)
    stream = await impatient.responses.create(model=MODEL, input="hi", stream=True)
    with pytest.raises(openai.APITimeoutError):
        async for _ in stream:
            pass
    await server.gone()
    assert server.open_streams == 0
