"""Limits on the reply of one call, and replacement of invalid Unicode, in every protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest
from tests.providers.random_histories import request
from tests.providers.raw_servers import read_request, serving
from tests.providers.scripted_providers import CONNECTORS, PATIENT, Connect, collect_reply, pool

from talaria.contracts.provider import ModelReply, ModelText, Provider
from talaria.core.errors import ProviderUnreachable, ReplyTooLong
from talaria.core.messages import Text, ToolCall
from talaria.http_client.client import MAX_EVENT, EventParser
from talaria.http_client.connection import Timeouts
from talaria.providers.base.http_provider import ENDED, MAX_ARGUMENTS, MAX_TEXT

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PIECE = 50_000
IMPATIENT = Timeouts(connect=timedelta(seconds=3), first_byte=timedelta(seconds=0.3), silence=timedelta(seconds=0.3))


def text_event(text: str) -> dict[str, bytes]:
    """Return an event with this text, in each protocol; ``text`` is JSON without its quotation marks."""
    encoded = text.encode()
    return {
        "chat": b'{"choices": [{"delta": {"content": "%s"}}]}' % encoded,
        "responses": b'{"type": "response.output_text.delta", "delta": "%s"}' % encoded,
        "anthropic": b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "%s"}}'
        % encoded,
    }


BEGIN: dict[str, list[bytes]] = {
    "chat": [],
    "responses": [],
    "anthropic": [b'{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}'],
}


def ending(text: bytes) -> dict[str, list[bytes]]:
    """Return the events that end a reply; the Responses protocol repeats ``text`` there."""
    item = b'{"type": "message", "content": [{"type": "output_text", "text": "%s"}]}' % text
    return {
        "chat": [b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}', b"[DONE]"],
        "responses": [
            b'{"type": "response.output_item.done", "item": %s}' % item,
            b'{"type": "response.completed", "response": {"output": []}}',
        ],
        "anthropic": [
            b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}',
            b'{"type": "message_stop"}',
        ],
    }


def call_event(arguments: str) -> dict[str, list[bytes]]:
    """Return the events of a tool call with a piece of arguments."""
    encoded = msgspec.json.encode(arguments)
    function = b'{"index": 0, "id": "c1", "function": {"name": "f", "arguments": %s}}' % encoded
    item = b'{"type": "function_call", "call_id": "c1", "name": "f", "arguments": %s}' % encoded
    block = b'{"type": "tool_use", "id": "c1", "name": "f", "input": {}}'
    return {
        "chat": [b'{"choices": [{"delta": {"tool_calls": [%s]}}]}' % function],
        "responses": [b'{"type": "response.output_item.done", "item": %s}' % item],
        "anthropic": [
            b'{"type": "content_block_start", "index": 1, "content_block": %s}' % block,
            b'{"type": "content_block_delta", "index": 1, "delta": {"partial_json": %s}}' % encoded,
        ],
    }


@asynccontextmanager
async def replying(
    connect: Connect, stream: Callable[[], AsyncIterator[bytes]], timeouts: Timeouts = PATIENT
) -> AsyncIterator[Provider]:
    """Yield a provider whose server streams these bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HEAD)
        async for data in stream():
            writer.write(data)
            await writer.drain()

    async with serving(talk) as port, pool() as http:
        yield connect(f"http://127.0.0.1:{port}", http, timeouts)


def as_events(events: list[bytes]) -> bytes:
    return b"".join(b"data: %s\n\n" % event for event in events)


protocols = pytest.mark.parametrize("protocol", CONNECTORS)


@protocols
async def test_endless_reply_is_cut_at_the_limit_with_a_notice(protocol: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield as_events(BEGIN[protocol])
        while True:
            yield as_events([text_event("x" * PIECE)[protocol]])

    async with replying(CONNECTORS[protocol], endless) as provider:
        events, reply = await collect_reply(provider, request())
    texts = [event.text for event in events if isinstance(event, ModelText)]
    assert "".join(texts) == "x" * MAX_TEXT + ENDED
    assert (reply.stop, reply.message.text) == ("length", "x" * MAX_TEXT + ENDED)


@protocols
async def test_event_that_is_too_large_is_refused(protocol: str) -> None:
    async def huge() -> AsyncIterator[bytes]:
        yield b'data: {"'
        while True:
            yield b"x" * PIECE

    async with replying(CONNECTORS[protocol], huge) as provider:
        with pytest.raises(ReplyTooLong, match="larger than 4 MB"):
            await collect_reply(provider, request())


@protocols
async def test_arguments_that_are_too_long_are_refused(protocol: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield as_events(call_event("x" * (MAX_ARGUMENTS // 4))[protocol])

    async with replying(CONNECTORS[protocol], endless) as provider:
        with pytest.raises(ReplyTooLong, match="arguments"):
            await collect_reply(provider, request())


@protocols
@pytest.mark.parametrize("has_begun", [False, True])
async def test_comments_without_events_count_as_silence(protocol: str, has_begun: bool) -> None:
    async def keep_alive() -> AsyncIterator[bytes]:
        if has_begun:
            yield as_events([*BEGIN[protocol], text_event("Well")[protocol]])
        while True:
            yield b": keep-alive\n\n"
            await asyncio.sleep(0.01)  # real time: a server that sends nothing but keep-alives

    async with replying(CONNECTORS[protocol], keep_alive, IMPATIENT) as provider:
        with pytest.raises(ProviderUnreachable, match="stopped sending"):
            await collect_reply(provider, request())


@protocols
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (r"half \ud83d, low \udE00, whole \ud83d\ude00", "half �, low �, whole 😀"),
        (r"\ud83d\ud83d\ude00 \\ud83d \\\ud83d", "�😀 \\ud83d \\�"),
        ("caf\udce9", "caf�"),
    ],
)
async def test_invalid_unicode_in_a_reply_is_replaced(protocol: str, sent: str, expected: str) -> None:
    encoded = sent.encode(errors="surrogateescape")

    async def stream() -> AsyncIterator[bytes]:
        event = text_event("TEXT")[protocol].replace(b"TEXT", encoded)
        yield as_events([*BEGIN[protocol], event, *ending(encoded)[protocol]])

    async with replying(CONNECTORS[protocol], stream) as provider:
        events, reply = await collect_reply(provider, request())
    assert [event.text for event in events if isinstance(event, ModelText)] == [expected]
    assert isinstance(reply, ModelReply)
    assert [part.text for part in reply.message.parts if isinstance(part, Text)] == [expected]


@protocols
async def test_arguments_below_the_limit_are_accepted(protocol: str) -> None:
    arguments = '{"text": "' + "x" * 200_000 + '"}'

    async def stream() -> AsyncIterator[bytes]:
        yield as_events([*BEGIN[protocol], *call_event(arguments)[protocol], *ending(b"")[protocol]])

    async with replying(CONNECTORS[protocol], stream) as provider:
        _, reply = await collect_reply(provider, request())
    assert [part.arguments for part in reply.message.parts if isinstance(part, ToolCall)] == [arguments]


def test_comments_do_not_count_towards_the_event_size() -> None:
    parser = EventParser()
    for _ in range(2 * MAX_EVENT // 1000):
        assert parser.feed(b": " + b"x" * 1000 + b"\n\n") == []
