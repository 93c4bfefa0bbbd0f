"""Requests of an adapter on a connection that its network has closed: only what is safe is sent again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.providers.raw_servers import OK, Counted, serving

from talaria.core.errors import Rejected, Unreachable
from talaria.platforms.http_api import HttpApi, describe_error

PATIENCE = timedelta(minutes=1)


@asynccontextmanager
async def kept_connection(server: Counted) -> AsyncIterator[tuple[HttpApi, str]]:
    """Give an API with a connection that has served once, and its URL."""
    api = HttpApi("the network", lambda answer: Rejected(describe_error(answer)))
    async with serving(server.talk) as port:
        await api.call("GET", f"http://127.0.0.1:{port}/", {}, PATIENCE)
        yield api, f"http://127.0.0.1:{port}/"
        await api.close()


@pytest.mark.parametrize(("method", "has_key"), [("GET", False), ("PUT", False), ("POST", True)])
async def test_a_request_that_may_repeat_is_sent_again_on_a_new_connection(method: str, *, has_key: bool) -> None:
    server = Counted([OK, b""], [OK])
    async with kept_connection(server) as (api, url):
        assert (await api.call(method, url, {}, PATIENCE, body=b"{}", has_key=has_key)).body == b"hello"
    assert (server.count, len(server.heard)) == (2, 3)


async def test_a_message_without_a_key_is_not_sent_again() -> None:
    server = Counted([OK, b""], [OK])
    async with kept_connection(server) as (api, url):
        with pytest.raises(Unreachable, match="closed the connection"):
            await api.call("POST", url, {}, PATIENCE, body=b"{}")
    assert (server.count, len(server.heard)) == (1, 2)
