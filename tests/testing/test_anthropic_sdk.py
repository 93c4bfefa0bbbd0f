"""The scripted model server with the official Anthropic client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from talaria.testing.model_server import (
    Answer,
    Ask,
    Collapse,
    CutOff,
    Fail,
    Garbage,
    ModelServer,
    Say,
    Tokens,
    bad_key,
    context_too_long,
    model_unknown,
    no_credit,
    overloaded,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anthropic import Anthropic, APIStatusError, AsyncAnthropic
    from anthropic.types import Message, MessageParam, ToolParam

    Asking = Callable[[AsyncAnthropic], Awaitable[Message]]

MODEL = "test-model"
HI: MessageParam = {"role": "user", "content": "hi"}
TOOL: ToolParam = {
    "name": "read_file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
TWO_CALLS = Say(
    "Let me look.",
    calls=[Ask("read_file", {"path": "notes/one.txt"}), Ask("read_file", {"path": "notes/two.txt"}, id="toolu_two")],
)
USED = Tokens(input=100, output=20, cache_read=60, cache_write=5)


def connect(url: str, key: str = "sk-test") -> AsyncAnthropic:
    from anthropic import AsyncAnthropic  # noqa: PLC0415 (takes two seconds, which each worker would spend)

    return AsyncAnthropic(base_url=url, api_key=key, max_retries=0, timeout=20)


def connect_blocking(url: str) -> Anthropic:
    from anthropic import Anthropic  # noqa: PLC0415 (as above)

    return Anthropic(base_url=url, api_key="sk-test", max_retries=0, timeout=20)


def error_type(name: str) -> type[APIStatusError]:
    import anthropic  # noqa: PLC0415 (as above)

    found: type[APIStatusError] = getattr(anthropic, name)
    return found


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[AsyncAnthropic]:
    async with connect(server.url) as client:
        yield client


async def ask(client: AsyncAnthropic, *messages: MessageParam) -> Message:
    return await client.messages.create(model=MODEL, max_tokens=1000, messages=messages or [HI], tools=[TOOL])


async def stream(client: AsyncAnthropic) -> Message:
    async with client.messages.stream(model=MODEL, max_tokens=1000, messages=[HI], tools=[TOOL]) as streamed:
        return await streamed.get_final_message()


def texts(message: Message) -> list[str]:
    return [block.text for block in message.content if block.type == "text"]


def inputs(message: Message) -> list[object]:
    return [block.input for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("how", [ask, stream])
async def test_reply_has_text_and_usage(server: ModelServer, client: AsyncAnthropic, how: Asking) -> None:
    server.script(Say("Hello there", usage=USED))
    message = await how(client)
    assert (texts(message), message.stop_reason, message.model) == (["Hello there"], "end_turn", MODEL)
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens) == (100, 20)
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (60, 5)


@pytest.mark.parametrize("how", [ask, stream])
async def test_thinking_block_is_first_and_signed(server: ModelServer, client: AsyncAnthropic, how: Asking) -> None:
    server.script(Say("Hello", reasoning="I should greet."))
    block = (await how(client)).content[0]
    assert block.type == "thinking"
    assert block.thinking == "I should greet."
    assert block.signature


@pytest.mark.parametrize("how", [ask, stream])
async def test_parallel_tools_are_called_and_answered(server: ModelServer, client: AsyncAnthropic, how: Asking) -> None:
    server.script(TWO_CALLS, Say("Both are empty."))
    first = await how(client)
    assert (texts(first), first.stop_reason) == (["Let me look."], "tool_use")
    assert inputs(first) == [{"path": "notes/one.txt"}, {"path": "notes/two.txt"}]
    ids = [block.id for block in first.content if block.type == "tool_use"]
    assert ids[0].startswith("toolu_")
    assert ids[1] == "toolu_two"
    results: MessageParam = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": one, "content": ""} for one in ids],
    }
    assert texts(await ask(client, HI, first.to_param(), results)) == ["Both are empty."]


async def test_stream_events_are_in_the_right_order(server: ModelServer, client: AsyncAnthropic) -> None:
    server.script(Say("Hello there", reasoning="Greet", calls=[Ask("read_file", "{}")]))
    streamed = await client.messages.create(model=MODEL, max_tokens=1000, messages=[HI], stream=True)
    kinds = [event.delta.type if event.type == "content_block_delta" else event.type async for event in streamed]
    assert kinds == [
        "message_start",
        *("content_block_start", "thinking_delta", "signature_delta", "content_block_stop"),
        *("content_block_start", "text_delta", "text_delta", "content_block_stop"),
        *("content_block_start", "input_json_delta", "input_json_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


async def test_text_is_streamed_word_by_word(server: ModelServer, client: AsyncAnthropic) -> None:
    server.script(Say("One two  three\n\nfour"))
    async with client.messages.stream(model=MODEL, max_tokens=1000, messages=[HI]) as streamed:
        assert [piece async for piece in streamed.text_stream] == ["One", " two", "  three", "\n\nfour"]


def test_blocking_client_gets_replies() -> None:
    def ask_and_stream(url: str) -> list[str]:
        with connect_blocking(url) as client:
            replies = texts(client.messages.create(model=MODEL, max_tokens=1000, messages=[HI]))
            with client.messages.stream(model=MODEL, max_tokens=1000, messages=[HI]) as streamed:
                return [*replies, streamed.get_final_text()]

    async def run() -> list[str]:
        async with ModelServer() as server:
            server.script(Say("first"), Say("second"))
            return await asyncio.to_thread(ask_and_stream, server.url)

    assert asyncio.run(run()) == ["first", "second"]


async def test_incomplete_reply_has_its_reason(server: ModelServer, client: AsyncAnthropic) -> None:
    server.script(Say("And then", stop="length"), Say("I", stop="refused"))
    assert [(await ask(client)).stop_reason, (await stream(client)).stop_reason] == ["max_tokens", "refusal"]


async def test_models_are_listed() -> None:
    async with (
        ModelServer(models=["small", "large"]) as server,
        connect(server.url) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["small", "large"]


@pytest.mark.parametrize("how", [ask, stream])
@pytest.mark.parametrize(
    ("trouble", "error", "kind"),
    [
        (Fail(429), "RateLimitError", "rate_limit_error"),
        (no_credit(), "APIStatusError", "billing_error"),
        (bad_key(), "AuthenticationError", "authentication_error"),
        (context_too_long(), "BadRequestError", "invalid_request_error"),
        (refused(), "BadRequestError", "invalid_request_error"),
        (model_unknown(), "NotFoundError", "not_found_error"),
        (overloaded(), "OverloadedError", "overloaded_error"),
        (Fail(500), "InternalServerError", "api_error"),
        (Fail(403, kind="permission_error"), "PermissionDeniedError", "permission_error"),
    ],
)
async def test_errors_are_raised_as_error_types_of_the_client(
    server: ModelServer,
    client: AsyncAnthropic,
    how: Asking,
    trouble: Answer,
    error: str,
    kind: str,
) -> None:
    server.script(trouble)
    with pytest.raises(error_type(error)) as raised:
        await how(client)
    assert raised.value.type == kind
    assert raised.value.request_id


async def test_rate_limit_has_a_retry_after_header(server: ModelServer, client: AsyncAnthropic) -> None:
    server.script(Fail(429, retry_after=7))
    with pytest.raises(error_type("RateLimitError")) as raised:
        await ask(client)
    assert raised.value.response.headers["retry-after"] == "7"


async def test_unknown_api_keys_are_refused() -> None:
    async with (
        ModelServer(keys={"sk-one"}) as server,
        connect(server.url, "sk-two") as stranger,
        connect(server.url, "sk-one") as friend,
    ):
        assert texts(await ask(friend)) == ["ok"]
        with pytest.raises(error_type("AuthenticationError")):
            await ask(stranger)
        with pytest.raises(error_type("AuthenticationError")):
            await stranger.models.list()


async def test_broken_streams_raise_errors_of_the_client(server: ModelServer, client: AsyncAnthropic) -> None:
    server.script(CutOff(after=2), Garbage(after=2), Collapse(after=2, fail=overloaded()))
    with pytest.raises(Exception, match="incomplete chunked read"):
        await stream(client)
    with pytest.raises(ValueError, match=r"Unterminated string|Expecting"):
        await stream(client)
    with pytest.raises(error_type("APIStatusError")) as raised:
        await stream(client)
    assert raised.value.type == "overloaded_error"
