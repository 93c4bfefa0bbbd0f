"""HTTP pool: proxies of the environment, closing and reopening, and text received before an error."""

import asyncio

import pytest
from tests.providers.random_histories import request
from tests.providers.scripted_providers import PATIENT, collect_reply, connect_chat, listening, pool

from talaria.contracts.provider import ModelReasoning, ModelText
from talaria.core.errors import ProviderError
from talaria.testing.model_server import ModelServer


async def test_requests_use_the_environment_proxy_except_to_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ModelServer() as server, listening(server.url) as (port, connections), pool() as http:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        await collect_reply(connect_chat("http://model.test", http, PATIENT), request())
        assert len(connections) == 1
        await collect_reply(connect_chat(server.url, http, PATIENT), request())
        assert len(connections) == 1


async def test_closed_pool_reopens_on_the_next_request() -> None:
    async with ModelServer() as server, pool() as http:
        for _ in range(2):
            await collect_reply(connect_chat(server.url, http, PATIENT), request())
            await http.close()


async def test_text_received_before_an_error_is_delivered_first() -> None:
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
