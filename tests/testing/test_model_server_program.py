"""The scripted model server as a separate program."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

CHAT: dict[str, object] = {"model": "test-model", "messages": [{"role": "user", "content": "Who is there?"}]}


@asynccontextmanager
async def program(*options: str) -> AsyncIterator[str]:
    """Run the program and yield the URL that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "talaria.testing.model_server", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.communicate()


async def chat(url: str, *, stream: bool = False) -> str:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/chat/completions", json={**CHAT, "stream": stream}) as response,
    ):
        return await response.text()


async def test_program_prints_its_url_and_gives_the_configured_answer() -> None:
    async with program("--reply", "Nobody home.") as url:
        assert url.startswith("http://127.0.0.1:")
        assert '"content":"Nobody home."' in await chat(url)
        assert await chat(url, stream=True) == await chat(url, stream=True)


async def test_program_echoes_the_question() -> None:
    async with program("--echo") as url:
        assert '"content":"Who is there?"' in await chat(url)


@pytest.mark.parametrize("pause", ["0", "0.001"])
async def test_program_streams_in_the_configured_number_of_pieces(pause: str) -> None:
    async with program("--reply", "Nobody home.", "--chunks", "4", "--pause", pause) as url:
        assert (await chat(url, stream=True)).count('"delta":{"content":"') == 4
