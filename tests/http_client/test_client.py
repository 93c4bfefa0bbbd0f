"""Requests take the way that the environment says, a pool can be closed at any time, and no word is lost."""

import asyncio

import pytest
from tests.providers.random_histories import request
from tests.providers.scripted_providers import PATIENT, connect_chat, heard, listening, pool

from talaria.contracts.provider import ModelReasoning, ModelText
from talaria.core.errors import ProviderError
from talaria.testing.model_server import ModelServer


async def test_requests_take_the_proxy_of_the_environment_except_to_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ModelServer() as server, listening(server.url) as (port, came), pool() as http:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        await heard(connect_chat("http://model.test", http, PATIENT), request())
        assert len(came) == 1
        await heard(connect_chat(server.url, http, PATIENT), request())
        assert len(came) == 1


async def test_a_closed_pool_opens_again_when_it_is_needed() -> None:
    async with ModelServer() as server, pool() as http:
        for _ in range(2):
            await heard(connect_chat(server.url, http, PATIENT), request())
            await http.close()


async def test_words_that_come_with_an_error_are_heard_before_it() -> None:
    deltas = [b'{"choices":[{"delta":{"reasoning_content":"so "}}]}', b'{"choices":[{"delta":{"content":"one "}}]}']
    events = [*deltas, b'{"choices":[{"delta":{"content":"two"}}]}', b'{"error":{"message":"gone"}}']

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(head + b"".join(b"data: " + event + b"\n\n" for event in events))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, pool() as http:
        port = server.sockets[0].getsockname()[1]
        replies = connect_chat(f"http://127.0.0.1:{port}", http, PATIENT).reply(request())
        assert [await anext(replies), await anext(replies)] == [ModelReasoning("so "), ModelText("one two")]
        with pytest.raises(ProviderError):
            await anext(replies)
