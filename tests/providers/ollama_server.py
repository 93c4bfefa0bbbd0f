"""The part of Ollama's API that describes models, on a free port of loopback."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

LOADED = {"name": "qwen3:latest", "model": "qwen3:latest", "size": 5, "context_length": 32768}


@asynccontextmanager
async def serving(*, loaded: Sequence[dict[str, Any]], parameters: str | None = "") -> AsyncIterator[str]:
    """Serve ``/api/ps`` and ``/api/show`` on a free port; without ``parameters`` no model is known."""

    async def ps(_: web.Request) -> web.Response:
        return web.json_response({"models": list(loaded)})

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
