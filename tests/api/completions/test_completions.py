"""Chat completions with OpenAI's client: plain, streamed, with tools, pictures and histories."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from tests.api.in_process_server import PATIENCE, Hosted

from talaria.core.ids import SessionId
from talaria.testing.model_server import Ask, ModelServer, Say, Tokens, bad_key

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
_LOOK = Say("Let me look.", calls=[Ask("list_files", {}, id="call_1")])


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(models=("scripted", "test-model")) as server:
        yield server


@pytest.fixture
async def client(host: Hosted) -> AsyncIterator[openai.AsyncOpenAI]:
    one = openai.AsyncOpenAI(base_url=f"{host.url}/v1", api_key=host.key, max_retries=0, timeout=PATIENCE)
    async with one:
        yield one


async def _streamed(client: openai.AsyncOpenAI, **more: Any) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(model="talaria", messages=HI, stream=True, **more)
    return [chunk async for chunk in stream]


def _text(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_plain_answer_has_all_fields_that_the_client_reads(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(Say("Hello there.", usage=Tokens(20, 5, cache_read=10, reasoning=2)))
    answer = await client.chat.completions.create(model="talaria", messages=HI)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", "talaria")
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello there.", "stop")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (30, 5, 35)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 10


async def test_synchronous_openai_client_is_answered(host: Hosted, model: ModelServer) -> None:
    model.script(Say("One."), Say("Two three.", chunks=2))

    def ask() -> tuple[str | None, str]:
        with openai.OpenAI(base_url=f"{host.url}/v1", api_key=host.key, max_retries=0) as one:
            whole = one.chat.completions.create(model="talaria", messages=HI)
            stream = one.chat.completions.create(model="talaria", messages=HI, stream=True)
            return whole.choices[0].message.content, _text(list(stream))

    assert await asyncio.to_thread(ask) == ("One.", "Two three.")


async def test_stream_has_role_then_text_then_finish_reason(client: openai.AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say("Hello there, friend.", chunks=3, pause=0.01))
    first, *pieces, last = await _streamed(client)
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert _text(pieces) == "Hello there, friend."
    assert all(chunk.choices[0].finish_reason is None and chunk.usage is None for chunk in (first, *pieces))
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == ("stop", None)
    assert len({chunk.id for chunk in (first, *pieces, last)}) == 1


async def test_stream_includes_usage_on_request(client: openai.AsyncOpenAI, model: ModelServer) -> None:
    model.script(Say("Hello.", usage=Tokens(7, 3)))
    *others, used = await _streamed(client, stream_options={"include_usage": True})
    assert used.choices == []
    assert used.usage is not None
    assert (used.usage.prompt_tokens, used.usage.completion_tokens, used.usage.total_tokens) == (7, 3, 10)
    assert all(chunk.usage is None for chunk in others)


async def test_stream_ends_with_the_done_marker(host: Hosted, model: ModelServer) -> None:
    model.script(Say("Hello."))
    answer = await host.http.post("/v1/chat/completions", json={"messages": HI, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith('data: {"id":"chatcmpl-')
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")


async def test_tool_calls_are_sent_next_to_the_text_and_never_in_it(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(_LOOK, Say("It is empty."))
    chunks = await _streamed(client)
    assert _text(chunks) == "Let me look.\n\nIt is empty."
    news = [chunk.model_extra["talaria"] for chunk in chunks if chunk.model_extra and "talaria" in chunk.model_extra]
    assert [(one["type"], one["name"]) for one in news] == [
        ("tool.called", "list_files"),
        ("tool.answered", "list_files"),
    ]
    assert all(chunk.choices[0].delta.tool_calls is None for chunk in chunks)


async def test_a_request_without_streaming_returns_the_answer_alone(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(_LOOK, Say("It is empty."))
    answer = await client.chat.completions.create(model="talaria", messages=HI)
    assert answer.choices[0].message.content == "It is empty."


@pytest.mark.parametrize(("asked", "named"), [("tools", True), ("none", False)])
async def test_tool_events_are_separate_events_or_omitted_by_header(
    host: Hosted, model: ModelServer, asked: str, *, named: bool
) -> None:
    model.script(_LOOK, Say("It is empty."))
    body, headers = {"messages": HI, "stream": True}, {"x-talaria-events": asked}
    answer = await host.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.text.count("event: talaria.tool\n") == 2 * named
    assert '"talaria":' not in answer.text


async def test_history_of_the_client_becomes_the_transcript_of_a_session(
    client: openai.AsyncOpenAI, model: ModelServer, host: Hosted
) -> None:
    history: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Speak like a cat."},
        {"role": "user", "content": "Who am I?"},
        {"role": "assistant", "content": "You are Nobody."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "you?"}]},
    ]
    answer = await client.chat.completions.with_raw_response.create(model="talaria", messages=history)
    session_id = SessionId(answer.headers["x-talaria-session-id"])
    stored = await host.application.store.read(lambda tx: tx.messages.load(session_id))
    assert [(one.message.role, one.message.text) for one in stored] == [
        ("user", "Who am I?"),
        ("assistant", "You are Nobody."),
        ("user", "And\nyou?"),
        ("assistant", "ok"),
    ]
    system, *others = model.received[0].json["messages"]
    assert "Speak like a cat.\n\nBe brief." in system["content"]
    assert [one["role"] for one in others] == ["user", "assistant", "user"]
    session = await host.application.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    assert (session.source, session.model) == ("api", "scripted")


async def test_tool_calls_in_a_history_are_stored_only_with_their_results(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    call: Any = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    lost: Any = {"id": "c2", "type": "function", "function": {"name": "lost", "arguments": "{}"}}
    history: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call, lost]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "tool", "tool_call_id": "c9", "content": "nobody asked"},
        {"role": "assistant", "content": "Noon."},
        {"role": "user", "content": "Thanks."},
    ]
    await client.chat.completions.create(model="talaria", messages=history)
    asked = model.received[0].json["messages"][1:]
    assert [one["role"] for one in asked] == ["user", "assistant", "tool", "assistant", "user"]
    assert [one["id"] for one in asked[1]["tool_calls"]] == ["c1"]


async def test_growing_history_continues_one_session_with_one_prefix(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    model.script(Say("First."), _LOOK, Say("Second."), Say("Third."))
    history: list[ChatCompletionMessageParam] = [{"role": "system", "content": "Be brief."}, *HI]
    sessions = set()
    for streamed in (False, True, False):
        if streamed:
            async with client.chat.completions.with_streaming_response.create(
                model="talaria", messages=history, stream=True
            ) as raw:
                sessions.add(raw.headers["x-talaria-session-id"])
                text = _text([chunk async for chunk in await raw.parse()])
        else:
            answer = await client.chat.completions.with_raw_response.create(model="talaria", messages=history)
            sessions.add(answer.headers["x-talaria-session-id"])
            text = answer.parse().choices[0].message.content or ""
        history += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And after {text}"}]
    assert len(sessions) == 1
    before, after = model.received[-2].json["messages"], model.received[-1].json["messages"]
    assert after[: len(before)] == before
    assert [one["role"] for one in after[1:]] == ["user", "assistant", "user", "assistant", "tool", "assistant", "user"]


async def test_two_requests_continuing_from_the_same_history_have_separate_sessions(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    await client.chat.completions.create(model="talaria", messages=HI)
    history: list[ChatCompletionMessageParam] = [*HI, {"role": "assistant", "content": "ok"}]
    one, other = await asyncio.gather(
        client.chat.completions.with_raw_response.create(
            model="talaria", messages=[*history, {"role": "user", "content": "left"}]
        ),
        client.chat.completions.with_raw_response.create(
            model="talaria", messages=[*history, {"role": "user", "content": "right"}]
        ),
    )
    assert one.headers["x-talaria-session-id"] != other.headers["x-talaria-session-id"]
    asked = sorted(str(received.json["messages"][1:]) for received in model.received[1:])
    assert ["left" in text and "right" in text for text in asked] == [False, False]


async def test_named_session_continues_with_only_the_last_message(
    client: openai.AsyncOpenAI, model: ModelServer, host: Hosted
) -> None:
    first = await client.chat.completions.with_raw_response.create(model="talaria", messages=HI)
    named = {"x-talaria-session-id": first.headers["x-talaria-session-id"]}
    history: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Nobody hears this."},
        {"role": "user", "content": "nor this"},
        {"role": "assistant", "content": "nor that"},
        {"role": "user", "content": "again"},
    ]
    again = await client.chat.completions.with_raw_response.create(
        model="talaria", messages=history, extra_headers=named
    )
    assert again.headers["x-talaria-session-id"] == named["x-talaria-session-id"]
    texts = [one["content"] for one in model.received[-1].json["messages"][1:]]
    assert texts == ["hi", "ok", "again"]
    unknown = {"x-talaria-session-id": "nowhere"}
    with pytest.raises(openai.NotFoundError) as error:
        await client.chat.completions.create(model="talaria", messages=HI, extra_headers=unknown)
    assert error.value.code == "session_not_found"


async def test_pictures_reach_the_model_and_are_stored_with_the_session(
    client: openai.AsyncOpenAI, model: ModelServer, host: Hosted
) -> None:
    history: list[ChatCompletionMessageParam] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": PIXEL}},
            ],
        }
    ]
    answer = await client.chat.completions.with_raw_response.create(model="talaria", messages=history)
    shown = [part for part in model.received[0].json["messages"][-1]["content"] if part["type"] == "image_url"]
    assert shown[0]["image_url"]["url"] == PIXEL
    folder = host.application.profile.media_folder / answer.headers["x-talaria-session-id"]
    assert [path.suffix for path in folder.iterdir()] == [".png"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc/passwd", "https:// or http://"),
        ("data:image/png;base64,@@@", "is invalid"),
        ("data:text/plain;base64,aGVsbG8=", "Unsupported image format"),
        ("http://127.0.0.1:9/secret.png", "Can't fetch"),
        ("http://localhost:9/secret.png", "Can't fetch"),
        ("http://169.254.169.254/latest", "Can't fetch"),
    ],
)
async def test_invalid_or_internal_picture_urls_are_refused(client: openai.AsyncOpenAI, url: str, message: str) -> None:
    history: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    ]
    with pytest.raises(openai.BadRequestError, match=message) as error:
        await client.chat.completions.create(model="talaria", messages=history)
    assert (error.value.param, error.value.code) == ("messages", "invalid_image")


@pytest.mark.parametrize(
    ("param", "more"),
    [
        ("tools", {"tools": [{"type": "function", "function": {"name": "mine"}}]}),
        ("functions", {"functions": [{"name": "mine"}]}),
        ("n", {"n": 2}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("stop", {"stop": ["."]}),
        ("logprobs", {"logprobs": True}),
        ("modalities", {"modalities": ["text", "audio"]}),
        ("messages", {"messages": [{"role": "assistant", "content": "I speak last."}]}),
        ("messages", {"messages": [{"role": "user", "content": ""}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": " \0"}]}]}),
        ("messages", {"messages": []}),
        ("messages[0].role", {"messages": [{"role": "cat", "content": "miaow"}]}),
    ],
)
async def test_unsupported_parameter_is_refused_by_name(
    host: Hosted, model: ModelServer, param: str, more: dict[str, Any]
) -> None:
    answer = await host.http.post("/v1/chat/completions", json={"model": "talaria", "messages": HI, **more})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert model.received == []


async def test_ignored_parameters_are_accepted(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="talaria", messages=HI, tools=[], n=1, temperature=0.2, max_tokens=9, user="me", seed=3, stop=None
    )
    assert answer.choices[0].message.content == "ok"


async def test_model_can_be_requested_with_its_provider(client: openai.AsyncOpenAI, model: ModelServer) -> None:
    answer = await client.chat.completions.create(model="mine:test-model", messages=HI)
    assert answer.model == "mine:test-model"
    assert model.received[-1].json["model"] == "test-model"
    with pytest.raises(openai.NotFoundError) as error:
        await client.chat.completions.create(model="mine:other", messages=HI)
    assert (error.value.code, error.value.param) == ("model_not_found", "model")


async def test_failed_turn_is_an_error_that_clients_do_not_retry(
    host: Hosted, model: ModelServer, client: openai.AsyncOpenAI
) -> None:
    model.otherwise(bad_key())
    patient = client.with_options(max_retries=2)
    with pytest.raises(openai.APIStatusError) as error:
        await patient.chat.completions.create(model="talaria", messages=HI)
    assert (error.value.status_code, error.value.code) == (502, "turn_failed")
    assert error.value.response.headers["x-talaria-session-id"]
    asked = len(model.received)
    with pytest.raises(openai.APIError, match="rejected my API key"):
        await _streamed(patient)
    assert len(model.received) == 2 * asked
