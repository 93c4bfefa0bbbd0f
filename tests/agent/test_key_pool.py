"""Key pool: several API keys used as one account."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.providers.random_histories import request
from tests.providers.scripted_providers import collect_reply, pool

from talaria.agent.key_pool import LONG_REST, KeyPool, PooledProvider
from talaria.contracts.provider import ListedModel, Provider
from talaria.core.errors import BadKey, NoCredit, ProviderBusy, ProviderUnreachable
from talaria.http_client.client import HttpPool
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.settings import OpenAIChatSettings
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import CutOff, Fail, ModelServer, Say, no_credit


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(keys=["good", "fine"]) as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    async with pool() as http:
        yield http


def pooled(server: ModelServer, http: HttpPool, clock: SettableClock, *keys: str) -> Provider:
    settings = [OpenAIChatSettings(name="test", base_url=f"{server.url}/v1", api_key=key) for key in keys]
    return PooledProvider([OpenAIChat(one, http) for one in settings], clock)


def keys_used(server: ModelServer) -> list[str]:
    return [received.headers["authorization"].removeprefix("Bearer ") for received in server.received]


async def test_key_is_used_until_it_is_rate_limited(server: ModelServer, http: HttpPool, clock: SettableClock) -> None:
    provider = pooled(server, http, clock, "good", "fine")
    server.script(Say("1"), Fail(429, retry_after=30), Say("2"), Say("3"))
    for expected in ("1", "2", "3"):
        _, reply = await collect_reply(provider, request())
        assert reply.message.text == expected
    assert keys_used(server) == ["good", "good", "fine", "fine"]


async def test_rate_limited_key_is_used_again_after_its_wait(
    server: ModelServer, http: HttpPool, clock: SettableClock
) -> None:
    provider = pooled(server, http, clock, "good", "fine")
    server.script(Fail(429, retry_after=30), Fail(429, retry_after=90))
    with pytest.raises(ProviderBusy) as busy:
        await collect_reply(provider, request())
    assert busy.value.retry_after == timedelta(seconds=30)
    clock.advance(timedelta(seconds=30))
    await collect_reply(provider, request())
    assert keys_used(server) == ["good", "fine", "good"]


async def test_invalid_key_is_not_used_again_soon(server: ModelServer, http: HttpPool, clock: SettableClock) -> None:
    provider = pooled(server, http, clock, "bad", "good")
    for _ in range(2):
        await collect_reply(provider, request())
    assert keys_used(server) == ["bad", "good", "good"]
    assert await provider.models() == [ListedModel("test-model")]


async def test_error_of_the_key_is_raised_if_no_key_can_be_used(
    server: ModelServer, http: HttpPool, clock: SettableClock
) -> None:
    provider = pooled(server, http, clock, "bad")
    for _ in range(2):
        with pytest.raises(BadKey):
            await collect_reply(provider, request())
    assert keys_used(server) == ["bad"]


async def test_other_errors_are_raised_without_trying_another_key(
    server: ModelServer, http: HttpPool, clock: SettableClock
) -> None:
    provider = pooled(server, http, clock, "good", "fine")
    server.script(CutOff(after=0))
    with pytest.raises(ProviderUnreachable):
        await collect_reply(provider, request())
    assert keys_used(server) == ["good"]


def test_pool_reports_the_shortest_wait_and_ignores_keys_without_credit(clock: SettableClock) -> None:
    keys = KeyPool(3, clock)
    keys.rest_key(0, ProviderBusy("later", retry_after=timedelta(seconds=9)))
    keys.rest_key(1, NoCredit("empty"))
    keys.rest_key(2, ProviderBusy("soon", retry_after=timedelta(0)))
    with pytest.raises(ProviderBusy) as busy:
        keys.pick()
    assert busy.value.retry_after == timedelta(seconds=1)
    clock.advance(timedelta(seconds=1))
    assert keys.pick() == 2
    clock.advance(LONG_REST)
    assert keys.pick() == 2


async def test_key_without_credit_is_skipped(server: ModelServer, http: HttpPool, clock: SettableClock) -> None:
    provider = pooled(server, http, clock, "good", "fine")
    server.script(no_credit(), Say("Paid."))
    _, reply = await collect_reply(provider, request())
    assert reply.message.text == "Paid."
    await provider.close()
