"""Provider errors name provider, address, secret and status to the owner, and none of that to others."""

import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.providers.random_histories import request
from tests.providers.scripted_providers import heard, pool

from talaria.agent.key_pool import PooledProvider
from talaria.contracts.clock import SystemClock
from talaria.core.errors import BadKey, ProviderError, ProviderUnreachable
from talaria.http_client.client import HttpPool
from talaria.providers.factory import open_provider
from talaria.providers.presets import Preset, find_preset
from talaria.testing.model_server import (
    Answer,
    Fail,
    ModelServer,
    bad_key,
    model_unknown,
    no_credit,
    overloaded,
)


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    async with pool() as opened:
        yield opened


def openai_at(url: str) -> Preset:
    return msgspec.structs.replace(find_preset("openai"), base_url=f"{url}/v1")


def own_at(url: str) -> Preset:
    return Preset(name="mine", title="mine", base_url=url)


async def failure_of(preset: Preset, http: HttpPool, key: str = "", secret: str = "") -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await heard(open_provider(preset, http, key, secret=secret), request())
    return failed.value


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            bad_key(),
            "OpenAI rejected the API key (OPENAI_API_KEY). Set a new one: `talaria config set OPENAI_API_KEY -`.",
        ),
        (
            no_credit(),
            "The OpenAI account (OPENAI_API_KEY) is out of credit (HTTP 429). Add credit, or use another model.",
        ),
        (
            model_unknown(),
            "OpenAI at {url}/v1 has no model named `{model}`. `talaria models` lists the available ones.",
        ),
        (overloaded(), "OpenAI is having problems (HTTP 503). Try again later."),
        (Fail(429, retry_after=7), "OpenAI has reached its rate limit (HTTP 429). Try again in 7 s."),
    ],
    ids=["key", "credit", "model", "overloaded", "busy"],
)
async def test_owner_reads_provider_secret_and_status(
    server: ModelServer, http: HttpPool, answer: Answer, expected: str
) -> None:
    server.script(answer)
    error = await failure_of(openai_at(server.url), http, "sk-x", "OPENAI_API_KEY")
    assert error.for_owner == expected.format(url=server.url, model=request().model)
    assert "OpenAI" not in error.public


async def test_missing_key_of_own_provider_says_how_to_name_one(server: ModelServer, http: HttpPool) -> None:
    server.script(bad_key())
    error = await failure_of(own_at(f"{server.url}/v1"), http)
    assert error.for_owner.startswith(f"mine at {server.url}/v1 requires an API key (HTTP 401). ")
    assert "talaria config set providers.mine.key NAME" in error.for_owner


async def test_closed_port_is_named_with_its_address(http: HttpPool) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        error = await failure_of(own_at(url), http)
    assert error.for_owner == (
        f"I can't reach mine at {url}: the connection was refused."
        " Start the server, or correct `providers.mine.base_url`."
    )


async def test_unknown_host_name_is_distinguished_from_a_closed_port(http: HttpPool) -> None:
    error = await failure_of(own_at("http://model.invalid/v1"), http)
    assert isinstance(error, ProviderUnreachable)
    assert error.cause == "its host name can't be resolved"
    assert error.for_owner.endswith(" Check the network connection and `providers.mine.base_url`.")


async def test_error_of_pooled_keys_keeps_its_source(server: ModelServer, http: HttpPool) -> None:
    server.script(bad_key(), bad_key())
    keys = [open_provider(openai_at(server.url), http, key, secret=f"{key}_KEY") for key in ("FIRST", "SECOND")]
    with pytest.raises(BadKey) as failed:
        await heard(PooledProvider(keys, SystemClock()), request())
    assert "OpenAI rejected the API key (SECOND_KEY)" in failed.value.for_owner


def test_error_without_source_keeps_its_message() -> None:
    assert ProviderUnreachable("took too long").for_owner == f"{ProviderUnreachable.public} (took too long)"
