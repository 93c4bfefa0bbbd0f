"""Provider errors name provider, address, secret and status to the owner, and none of that to others."""

import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.providers.random_histories import request
from tests.providers.raw_servers import OK, answering, certificate, serving
from tests.providers.scripted_providers import collect_reply, pool

from talaria.agent.key_pool import PooledProvider
from talaria.app.configured_providers import ConfiguredProviders
from talaria.contracts.clock import SystemClock
from talaria.core.errors import (
    BadKey,
    ModelUnknown,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
    ProviderUnreachable,
    Refused,
)
from talaria.http_client.client import HttpPool
from talaria.providers.presets import PRESETS, Preset, find_preset, open_provider
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
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
        await collect_reply(open_provider(preset, http, key, secret=secret), request())
    return failed.value


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            bad_key(),
            (
                "OpenAI at {url}/v1 rejected the API key OPENAI_API_KEY (HTTP 401)."
                " Set a new one: `talaria config set OPENAI_API_KEY -`."
            ),
        ),
        (
            Fail(403),
            (
                "OpenAI at {url}/v1 refuses access with the key OPENAI_API_KEY (HTTP 403)."
                " Check what the account allows, or set another key: `talaria config set OPENAI_API_KEY -`."
            ),
        ),
        (
            no_credit(),
            (
                "The account of OpenAI at {url}/v1 with the key OPENAI_API_KEY is out of credit (HTTP 429)."
                " Add credit there, or use another model: `talaria model`."
            ),
        ),
        (
            model_unknown(),
            (
                "OpenAI at {url}/v1 has no model named `{model}` (HTTP 404)."
                " `talaria models` lists the available ones, `talaria model NAME` chooses one."
            ),
        ),
        (
            overloaded(),
            "OpenAI at {url}/v1 is having problems (HTTP 503). Try again later, or use another model: `talaria model`.",
        ),
        (
            Fail(429, retry_after=7),
            (
                "OpenAI at {url}/v1 has reached its rate limit with the key OPENAI_API_KEY (HTTP 429)."
                " Try again in 7 s, or use another model: `talaria model`."
            ),
        ),
    ],
    ids=["key", "access", "credit", "model", "overloaded", "busy"],
)
async def test_error_for_the_owner_names_provider_secret_and_status(
    server: ModelServer, http: HttpPool, answer: Answer, expected: str
) -> None:
    server.script(answer)
    error = await failure_of(openai_at(server.url), http, "sk-x", "OPENAI_API_KEY")
    assert error.for_owner == expected.format(url=server.url, model=request().model)
    assert "OpenAI" not in error.public


async def test_missing_key_of_a_custom_provider_shows_how_to_set_one(server: ModelServer, http: HttpPool) -> None:
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


async def test_address_from_the_environment_is_named_with_its_variable(http: HttpPool) -> None:
    values = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-x"}
    configured = ConfiguredProviders(Settings(), Secrets({}, values, []))
    with pytest.raises(ProviderUnreachable) as failed:
        await collect_reply(configured.open(configured.get("openai"), http), request())
    assert failed.value.for_owner.endswith("Start the server, or correct OPENAI_BASE_URL.")


async def test_unknown_host_name_is_distinguished_from_a_closed_port(http: HttpPool) -> None:
    error = await failure_of(own_at("http://model.invalid/v1"), http)
    assert isinstance(error, ProviderUnreachable)
    assert error.cause == "its host name can't be resolved"
    assert error.for_owner.endswith(" Check the network connection and `providers.mine.base_url`.")


async def test_error_of_pooled_keys_names_the_last_key(server: ModelServer, http: HttpPool) -> None:
    server.script(bad_key(), bad_key())
    keys = [open_provider(openai_at(server.url), http, key, secret=f"{key}_KEY") for key in ("FIRST", "SECOND")]
    with pytest.raises(BadKey) as failed:
        await collect_reply(PooledProvider(keys, SystemClock()), request())
    assert "rejected the API key SECOND_KEY" in failed.value.for_owner


def test_error_without_a_source_shows_its_message_to_the_owner() -> None:
    assert ProviderUnreachable("took too long").for_owner == f"{ProviderUnreachable.public} (took too long)"


STATUSES = {
    401: BadKey,
    403: BadKey,
    404: ModelUnknown,
    429: ProviderBusy,
    500: ProviderOverloaded,
    503: ProviderOverloaded,
}
COMMANDS = ("`talaria config set", "`talaria model", "`talaria login")


@pytest.mark.parametrize("status", STATUSES)
async def test_every_preset_names_provider_address_secret_status_and_command(
    server: ModelServer, http: HttpPool, status: int
) -> None:
    for preset in PRESETS:
        server.script(Fail(status))
        here = msgspec.structs.replace(preset, base_url=f"{server.url}/v1")
        key = preset.key_name or "ANY_KEY"
        error = await failure_of(here, http, "secret value", key)
        assert type(error) is STATUSES[status], preset.name
        message = error.for_owner
        assert f"{preset.title} at {server.url}/v1" in message
        assert f"(HTTP {status})" in message
        assert any(command in message for command in COMMANDS), message
        assert key in message or status not in {401, 403, 429}
        short = error.public
        assert not any(
            part in short for part in (preset.title, server.url, key, str(status), "talaria", "secret value")
        )
        assert "secret value" not in message


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_preset_names_its_missing_key(preset: Preset) -> None:
    variables = {name.split("|")[0]: "eu" for name in re.findall(r"{([A-Z_|]+)}", preset.base_url)}
    configured = ConfiguredProviders(Settings(), Secrets({}, variables, []))
    if preset.port is not None:
        assert configured.get(preset.name).local
        return
    with pytest.raises(Refused) as missing:
        configured.get(preset.name)
    message = str(missing.value)
    assert preset.title in message
    assert (preset.key_name or preset.login or "GOOGLE_APPLICATION_CREDENTIALS") in message
    assert preset.access not in {"key", "login"} or any(command in message for command in COMMANDS)


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def test_a_dead_or_refusing_proxy_is_named_with_the_variable(proxied: pytest.MonkeyPatch) -> None:
    async with pool() as http:
        proxied.setenv("https_proxy", "http://127.0.0.1:9")
        error = await failure_of(own_at("https://model.test/v1"), http)
    assert error.for_owner == (
        "I can't reach mine at https://model.test/v1: through the proxy 127.0.0.1:9, the connection was refused."
        " Check HTTPS_PROXY and HTTP_PROXY in the environment, or name the host in NO_PROXY."
    )
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(refusal)) as port, pool() as http:
        proxied.setenv("https_proxy", f"http://127.0.0.1:{port}")
        error = await failure_of(own_at("https://model.test/v1"), http)
    assert f"the proxy 127.0.0.1:{port} answered 407. Check HTTPS_PROXY" in error.for_owner


async def test_an_untrusted_certificate_is_explained(tmp_path: Path, http: HttpPool) -> None:
    context, _ = certificate(tmp_path)
    async with serving(answering(OK), context) as port:
        error = await failure_of(own_at(f"https://127.0.0.1:{port}/v1"), http)
    assert "its TLS certificate isn't trusted. If your network replaces certificates, set SSL_CERT_FILE" in (
        error.for_owner
    )
    assert "127.0.0.1" not in error.public
