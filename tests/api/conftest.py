"""What the tests of the API ask: the program or the application itself, with a scripted model behind it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI
from tests.api.hosting import Hosted, hosted
from tests.api.program import PATIENCE, Server, client, serving
from tests.app.scripted import scripted_program

from talaria.testing.model_server import ModelServer


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A model that says what a test has scripted."""
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path, model: ModelServer) -> AsyncIterator[Server]:
    """`talaria serve` as a process, with that model."""
    async with serving(scripted_program(tmp_path, model)) as served:
        yield served


@pytest.fixture
async def sdk(server: Server) -> AsyncIterator[AsyncOpenAI]:
    """The official client, asking it."""
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=PATIENCE, max_retries=0) as one:
        yield one


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A plain client, asking it."""
    async with client(server) as one:
        yield one


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    """The API within the process of the test."""
    async with hosted(tmp_path, model) as served:
        yield served
