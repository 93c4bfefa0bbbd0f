"""Requests take the way that the environment says, and a pool can be closed at any time."""

import pytest
from tests.providers.histories import request
from tests.providers.speakers import PATIENT, connect_chat, heard, listening, pool

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
