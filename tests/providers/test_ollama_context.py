"""How many tokens Ollama gives a model, asked of a server that answers as Ollama does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from talaria.providers.http import HttpPool
from talaria.providers.local_servers import OLLAMA_CONTEXT, ollama_context

LOADED = {"name": "qwen3:latest", "model": "qwen3:latest", "size": 5, "context_length": 32768}


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@asynccontextmanager
async def serving(*, loaded: list[dict[str, Any]], parameters: str | None = "") -> AsyncIterator[str]:
    """Serve ``/api/ps`` and ``/api/show`` on a free port; without ``parameters`` no model is known."""

    async def ps(_: web.Request) -> web.Response:
        return web.json_response({"models": loaded})

    async def show(request: web.Request) -> web.Response:
        model = (await request.json())["model"]
        if parameters is None:
            return web.json_response({"error": f"model '{model}' not found"}, status=404)
        return web.json_response({"parameters": parameters, "model_info": {"qwen3.context_length": 40960}})

    app = web.Application()
    app.add_routes([web.get("/api/ps", ps), web.post("/api/show", show)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", ["qwen3", "qwen3:latest"])
async def test_a_loaded_model_has_the_length_it_was_loaded_with(http: HttpPool, name: str) -> None:
    async with serving(loaded=[{"name": "other:latest", "context_length": 1}, LOADED]) as url:
        assert await ollama_context(http, url, name) == 32768


async def test_a_model_that_is_not_loaded_gets_what_its_own_file_asks_for(http: HttpPool) -> None:
    parameters = 'stop                           "<|im_end|>"\nnum_ctx                        16384\ntop_k 20'
    async with serving(loaded=[], parameters=parameters) as url:
        assert await ollama_context(http, url, "qwen3") == 16384


async def test_a_model_that_asks_for_nothing_gets_the_least_that_ollama_gives(http: HttpPool) -> None:
    async with serving(loaded=[], parameters="top_k 20") as url:
        assert await ollama_context(http, url, "qwen3") == OLLAMA_CONTEXT


async def test_an_old_server_that_does_not_tell_the_length_is_taken_to_give_the_least(http: HttpPool) -> None:
    async with serving(loaded=[{"name": "qwen3:latest"}]) as url:
        assert await ollama_context(http, url, "qwen3") == OLLAMA_CONTEXT


async def test_a_server_that_does_not_answer_tells_nothing(http: HttpPool) -> None:
    async with serving(loaded=[]) as url:
        gone = url
    assert await ollama_context(http, gone, "qwen3") is None
