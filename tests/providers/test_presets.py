"""Presets of known providers, and detection of local model servers."""

import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from typing import get_args

import msgspec
import pytest
from tests.providers.random_histories import request
from tests.providers.scripted_providers import collect_reply, listening, pool

from talaria.contracts.provider import ListedModel
from talaria.core.errors import MalformedReply, NotFound
from talaria.providers.base.http_provider import read_models
from talaria.providers.detection import LocalServer, probe_local
from talaria.providers.presets import PRESETS, Preset, ProtocolName, find_preset, open_provider, preset_for_url
from talaria.settings.secrets import KNOWN_SECRETS
from talaria.testing.model_server import ModelServer, WrongType


def local(name: str, port: int | str) -> Preset:
    return Preset(name=name, title=name, base_url=f"http://127.0.0.1:{port}/v1", port=int(port))


def test_preset_names_and_ports_are_unique() -> None:
    assert len({preset.name for preset in PRESETS}) == len(PRESETS) == 33
    ports = sorted(preset.port for preset in PRESETS if preset.port is not None)
    assert all(one != other for one, other in pairwise(ports))


def test_every_preset_has_a_known_secret_or_a_local_port() -> None:
    known = {secret.name for secret in KNOWN_SECRETS}
    for preset in PRESETS:
        assert (preset.key_name in known or preset.access in {"google", "login"}) != (preset.port is not None)
        assert {*preset.other_key_names} <= known
        assert preset.base_url.startswith("http://127.0.0.1:" if preset.port else ("https://", "{AZURE"))


def test_unknown_preset_error_lists_the_known_ones() -> None:
    assert find_preset("groq").title == "Groq"
    with pytest.raises(NotFound, match="ollama"):
        find_preset("grok")


def test_importing_presets_does_not_import_the_http_library() -> None:
    code = "import sys, talaria.providers.presets; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
async def test_each_preset_calls_its_protocol(preset: Preset) -> None:
    async with ModelServer() as server, pool() as http:
        here = Preset(
            name=preset.name,
            title=preset.title,
            base_url=f"{server.url}/v1",
            protocol=preset.protocol,
            quirks=preset.quirks,
            headers={"x-team": "seven"},
        )
        _, reply = await collect_reply(open_provider(here, http, "k"), request(effort="low", max_output_tokens=100))
        assert reply.message.text == "ok"
        assert server.received[-1].headers["x-team"] == "seven"
        assert server.received[-1].protocol == preset.protocol.removeprefix("openai_")


@pytest.mark.parametrize("protocol", get_args(ProtocolName))
async def test_every_protocol_has_an_adapter(protocol: ProtocolName) -> None:
    async with pool() as http:
        provider = open_provider(preset_for_url("http://127.0.0.1:9/v1", protocol), http)
    assert type(provider).__module__ == f"talaria.providers.{protocol}.adapter"


async def test_custom_server_is_reached_by_its_url() -> None:
    async with ModelServer() as server, pool() as http:
        for protocol in ("openai_chat", "openai_responses", "anthropic"):
            provider = open_provider(preset_for_url(f"{server.url}/v1/", protocol), http, "k")
            assert await provider.models() == [ListedModel("test-model")]


async def test_local_servers_are_found_despite_closed_and_silent_ports() -> None:
    async with ModelServer(models=["small", "large"]) as server, listening() as (silent, _), pool() as http:
        alive = local("alive", server.url.rpartition(":")[2])
        presets = (local("dead", 9), local("silent", silent), alive, find_preset("openai"))
        found = await probe_local(http, presets, limit=timedelta(seconds=2))
    assert found == [LocalServer(alive, ["small", "large"])]


async def test_server_without_a_model_list_is_not_detected() -> None:
    async with ModelServer(models=[]) as empty, pool() as http:
        empty.otherwise(WrongType())
        assert await probe_local(http, (local("empty", empty.url.rpartition(":")[2]),)) == []


def test_hidden_models_of_chatgpt_and_copilot_are_omitted() -> None:
    theirs = {"models": [{"slug": "gpt-6"}, {"slug": "internal", "visibility": "hide"}]}
    copilot = {"data": [{"id": "gpt-6", "model_picker_enabled": True}, {"id": "old", "model_picker_enabled": False}]}
    for listed in (theirs, copilot):
        assert read_models(msgspec.json.encode(listed)) == [ListedModel("gpt-6")]
    with pytest.raises(MalformedReply):
        read_models(b'{"object": "list"}')


def test_prices_and_context_limits_are_read_from_model_lists() -> None:
    openrouter = {
        "id": "maker/new",
        "context_length": 131_072,
        "pricing": {"prompt": "0.0000005", "completion": "0.0000015", "input_cache_read": "0.00000005"},
    }
    free = {"id": "maker/new:free", "pricing": {"prompt": "0", "completion": "0"}}
    routed = {"id": "openrouter/auto", "pricing": {"prompt": "-1", "completion": "-1"}}
    odd = {"id": "odd", "pricing": {"prompt": "nan", "completion": []}, "context_length": "long", "capabilities": 3}
    assert read_models(msgspec.json.encode({"data": [openrouter, free, routed, odd]})) == [
        ListedModel("maker/new", 131_072, 500_000, 1_500_000, 50_000),
        ListedModel("maker/new:free", None, 0, 0),
        ListedModel("openrouter/auto"),
        ListedModel("odd"),
    ]
    together = [{"id": "maker/new", "context_length": 8192, "pricing": {"input": 0.88, "output": 1.1, "hourly": 0}}]
    assert read_models(msgspec.json.encode(together)) == [ListedModel("maker/new", 8192, 880_000, 1_100_000)]
    copilot = {"id": "gpt-6", "capabilities": {"limits": {"max_context_window_tokens": 200_000}}}
    assert read_models(msgspec.json.encode({"data": [copilot]})) == [ListedModel("gpt-6", 200_000)]
