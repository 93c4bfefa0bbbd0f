"""Context length of a model as an Ollama server reports it."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.providers.ollama_server import LOADED, serving

from talaria.http_client.client import HttpPool
from talaria.providers.detection import OLLAMA_CONTEXT, fetch_ollama_context

SOON = timedelta(seconds=30)


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@pytest.mark.parametrize("name", ["qwen3", "qwen3:latest"])
async def test_loaded_model_has_the_context_it_was_loaded_with(http: HttpPool, name: str) -> None:
    async with serving(loaded=[{"name": "other:latest", "context_length": 1}, LOADED]) as url:
        assert await fetch_ollama_context(http, url, name, SOON) == 32768


async def test_unloaded_model_has_the_context_of_its_parameters(http: HttpPool) -> None:
    parameters = 'stop                           "<|im_end|>"\nnum_ctx                        16384\ntop_k 20'
    async with serving(loaded=[], parameters=parameters) as url:
        assert await fetch_ollama_context(http, url, "qwen3", SOON) == 16384


async def test_model_without_a_context_parameter_has_the_default_of_ollama(http: HttpPool) -> None:
    async with serving(loaded=[], parameters="top_k 20") as url:
        assert await fetch_ollama_context(http, url, "qwen3", SOON) == OLLAMA_CONTEXT


async def test_old_server_without_a_context_length_has_the_default_of_ollama(http: HttpPool) -> None:
    async with serving(loaded=[{"name": "qwen3:latest"}]) as url:
        assert await fetch_ollama_context(http, url, "qwen3", SOON) == OLLAMA_CONTEXT


async def test_unreachable_server_gives_no_context(http: HttpPool) -> None:
    async with serving(loaded=[]) as url:
        gone = url
    assert await fetch_ollama_context(http, gone, "qwen3", SOON) is None
