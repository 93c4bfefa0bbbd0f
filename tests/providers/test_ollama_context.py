"""How many tokens Ollama gives a model, asked of a server that answers as Ollama does."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.providers.ollama_server import LOADED, serving

from talaria.http_client.client import HttpPool
from talaria.providers.detection import OLLAMA_CONTEXT, ollama_context

SOON = timedelta(seconds=30)


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@pytest.mark.parametrize("name", ["qwen3", "qwen3:latest"])
async def test_a_loaded_model_has_the_length_it_was_loaded_with(http: HttpPool, name: str) -> None:
    async with serving(loaded=[{"name": "other:latest", "context_length": 1}, LOADED]) as url:
        assert await ollama_context(http, url, name, SOON) == 32768


async def test_a_model_that_is_not_loaded_gets_what_its_own_file_asks_for(http: HttpPool) -> None:
    parameters = 'stop                           "<|im_end|>"\nnum_ctx                        16384\ntop_k 20'
    async with serving(loaded=[], parameters=parameters) as url:
        assert await ollama_context(http, url, "qwen3", SOON) == 16384


async def test_a_model_that_asks_for_nothing_gets_the_least_that_ollama_gives(http: HttpPool) -> None:
    async with serving(loaded=[], parameters="top_k 20") as url:
        assert await ollama_context(http, url, "qwen3", SOON) == OLLAMA_CONTEXT


async def test_an_old_server_that_does_not_tell_the_length_is_taken_to_give_the_least(http: HttpPool) -> None:
    async with serving(loaded=[{"name": "qwen3:latest"}]) as url:
        assert await ollama_context(http, url, "qwen3", SOON) == OLLAMA_CONTEXT


async def test_a_server_that_does_not_answer_tells_nothing(http: HttpPool) -> None:
    async with serving(loaded=[]) as url:
        gone = url
    assert await ollama_context(http, gone, "qwen3", SOON) is None
