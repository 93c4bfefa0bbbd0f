"""Requests of an adapter on a connection that its network has closed: only safe requests are sent again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.providers.raw_servers import OK, ScriptedConnections, serving

from talaria.core.errors import Rejected, Unreachable
from talaria.platforms.http_api import HttpApi, describe_error

PATIENCE = timedelta(minutes=1)


@asynccontextmanager
async def reused_connection(server: ScriptedConnections) -> AsyncIterator[tuple[HttpApi, str]]:
    """Yield an API whose connection has already served a request, and the URL of the server."""
    api = HttpApi("the network", lambda answer: Rejected(describe_error(answer)))
    async with serving(server.talk) as port:
        await api.call("GET", f"http://127.0.0.1:{port}/", {}, PATIENCE)
        yield api, f"http://127.0.0.1:{port}/"
        await api.close()


@pytest.mark.parametrize(("method", "has_key"), [("GET", False), ("PUT", False), ("POST", True)])
async def test_idempotent_request_is_retried_on_a_new_connection(method: str, *, has_key: bool) -> None:
    server = ScriptedConnections([OK, b""], [OK])
    async with reused_connection(server) as (api, url):
        assert (await api.call(method, url, {}, PATIENCE, body=b"{}", has_key=has_key)).body == b"hello"
    assert (server.count, len(server.requests)) == (2, 3)


async def test_post_without_idempotency_key_is_not_retried() -> None:
    server = ScriptedConnections([OK, b""], [OK])
    async with reused_connection(server) as (api, url):
        with pytest.raises(Unreachable, match="closed the connection"):
            await api.call("POST", url, {}, PATIENCE, body=b"{}")
    assert (server.count, len(server.requests)) == (1, 2)
