"""Replies of models arrive completely, in every protocol, streamed or not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Raw
from tests.providers.random_histories import TOOL, make_message, request, user_message
from tests.providers.scripted_providers import CONNECTORS, PATIENT, Connect, collect_reply, listening, pool

from talaria.contracts.provider import ListedModel, ModelReasoning, ModelText, Provider, StopReason
from talaria.core.messages import File, Image, Reasoning, Text, ToolCall, ToolResult, Usage
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.testing.model_server import Ask, Instant, ModelServer, Say, Silence, Tokens
from talaria.testing.wait import LIMIT

SOON = LIMIT
pytestmark = pytest.mark.parametrize("connect", CONNECTORS.values(), ids=CONNECTORS)


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    async with pool() as http:
        yield http


@pytest.fixture
def provider(connect: Connect, server: ModelServer, http: HttpPool) -> Provider:
    return connect(server.url, http, PATIENT)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_reply_has_text_reasoning_calls_and_usage(provider: Provider, server: ModelServer, stream: bool) -> None:
    calls = [Ask("read_file", {"path": "a"}, id="call_1"), Ask("read_file", {"path": "ü"}, id="call_2")]
    used = Tokens(input=10, output=7, cache_read=3, cache_write=2, reasoning=0)
    server.script(Say("Let me look.", reasoning="Two files, it seems.", calls=calls, usage=used))
    events, reply = await collect_reply(provider, request(tools=(TOOL,), stream=stream))
    assert "".join(event.text for event in events if isinstance(event, ModelText)) == "Let me look."
    assert "".join(event.text for event in events if isinstance(event, ModelReasoning)) == "Two files, it seems."
    thought, text, *asked_for = reply.message.parts
    assert isinstance(thought, Reasoning)
    assert (thought.text, text) == ("Two files, it seems.", Text("Let me look."))
    assert asked_for == [
        ToolCall("call_1", "read_file", '{"path":"a"}'),
        ToolCall("call_2", "read_file", '{"path":"ü"}'),
    ]
    assert reply.stop == "tool_calls"
    assert reply.message.model == "test-model"
    counted = Usage(calls=1, input_tokens=15, output_tokens=7, cache_read_tokens=3, cache_write_tokens=2)
    assert reply.usage == counted


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("stop", ["end", "length", "refused"])
async def test_reply_has_its_stop_reason(
    provider: Provider, server: ModelServer, stop: StopReason, stream: bool
) -> None:
    server.script(Say("Well", stop=stop))
    _, reply = await collect_reply(provider, request(stream=stream))
    assert reply.stop == stop


async def test_arguments_that_are_not_json_are_passed_on_unchanged(provider: Provider, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("read_file", '{"path": ')]))
    _, reply = await collect_reply(provider, request(tools=(TOOL,)))
    (call,) = reply.message.parts
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"path": '


async def test_history_with_tool_calls_is_accepted_by_the_provider(provider: Provider, server: ModelServer) -> None:
    calls = [Ask("read_file", "", id="call 1"), Ask("read_file", {}, id="call_2")]
    server.script(Say(reasoning="Hm.", calls=calls), Say("Done."))
    first = request(tools=(TOOL,), effort="high")
    _, reply = await collect_reply(provider, first)
    results = make_message("tool", ToolResult("call_2", "b"), ToolResult("call 1", "", failed=True))
    _, reply = await collect_reply(
        provider, request([*first.messages, reply.message, results], tools=(TOOL,), effort="high")
    )
    assert reply.message.text == "Done."
    assert b"Hm." in server.received[-1].body


async def test_reasoning_is_sent_back_only_to_its_own_protocol(connect: Connect, server: ModelServer) -> None:
    server.otherwise(Say("Yes.", reasoning="Private."))
    async with pool() as http:
        _, reply = await collect_reply(connect(server.url, http, PATIENT), request(effort="high"))
        for other in CONNECTORS.values():
            await collect_reply(
                other(server.url, http, PATIENT),
                request([user_message(), reply.message, user_message()], effort="high"),
            )
            went_back = b"Private." in server.received[-1].body
            assert went_back == (server.received[-1].protocol == server.received[0].protocol)


async def test_pictures_and_documents_are_sent_from_files(
    provider: Provider, server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(b"pixels")
    (tmp_path / "a.pdf").write_bytes(b"pages")
    seen = user_message(
        Text("Look:"),
        Image(str(tmp_path / "a.png")),
        Image("https://model.test/b.png"),
        File(str(tmp_path / "a.pdf"), "a.pdf", "application/pdf"),
        File("/srv/a.zip", "a.zip", "application/zip"),
        Image(str(tmp_path / "lost.png")),
    )
    await collect_reply(provider, request([seen]))
    body = server.received[-1].body
    for part in (
        b"cGl4ZWxz",
        b"cGFnZXM=",
        b"https://model.test/b.png",
        b"a.zip (application/zip)",
        b"no longer readable",
    ):
        assert part in body


async def test_options_are_passed_on(provider: Provider, server: ModelServer) -> None:
    schema = Raw(b'{"type":"object","properties":{"title":{"type":"string"}}}')
    await collect_reply(
        provider, request(max_output_tokens=4096, temperature=0.5, output_schema=schema, system="Be kind.")
    )
    body = server.received[-1].body
    for part in (b"4096", b'"temperature":0.5', bytes(schema), b"Be kind.", b'"json_schema"'):
        assert part in body


async def test_connections_are_reused(connect: Connect, server: ModelServer) -> None:
    async with listening(server.url) as (port, clients), pool() as http:
        provider = connect(f"http://127.0.0.1:{port}", http, PATIENT)
        for stream in (True, True, False):
            await collect_reply(provider, request(stream=stream))
        assert await provider.models() == [ListedModel("test-model")]
        assert len(clients) == 1


async def test_closing_the_reply_closes_the_connection(provider: Provider, server: ModelServer) -> None:
    server.script(Silence(after=1))
    async with aclosing(provider.reply(request())) as events:
        assert isinstance(await anext(events), ModelText)
    async with asyncio.timeout(LIMIT):
        await server.gone(1)


async def test_cancelling_closes_the_connection(provider: Provider, server: ModelServer) -> None:
    server.script(Silence(after=0))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        reading = group.create_task(collect_reply(provider, request()))
        await server.arrived()
        reading.cancel()
        await server.gone(1)
    assert reading.cancelled()


async def test_pieces_received_together_are_one_text_event(
    connect: Connect, server: ModelServer, http: HttpPool
) -> None:
    text = "word " * 50
    server.otherwise(Instant(text, chunks=50))
    events, reply = await collect_reply(connect(server.url, http, PATIENT), request())
    assert events == [ModelText(text)]
    assert reply.message.text == text


async def test_slow_consumer_does_not_count_as_silence_of_the_provider(
    connect: Connect, server: ModelServer, http: HttpPool
) -> None:
    tight = Timeouts(silence=timedelta(milliseconds=500))
    server.script(Say("one two three"))
    async for event in connect(server.url, http, tight).reply(request()):
        if isinstance(event, ModelText):
            await asyncio.sleep(0.6)  # real time: a reader slower than the limit for silence
