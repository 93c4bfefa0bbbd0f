"""API servers for tests: as a process or in the test's process, with a scripted model."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.api.server_process import PATIENCE, Server, client, serving
from tests.app.program_with_model import scripted_program
from tests.storage.engines import StoreLocation

from talaria.testing.model_server import ModelServer

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A scripted model server."""
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path, model: ModelServer) -> AsyncIterator[Server]:
    """`talaria serve` as a process, with the scripted model."""
    async with serving(scripted_program(tmp_path, model)) as served:
        yield served


@pytest.fixture
async def sdk(server: Server) -> "AsyncIterator[AsyncOpenAI]":
    """OpenAI's client of that server."""
    from openai import AsyncOpenAI  # noqa: PLC0415 (takes a second of every worker, and few tests use it)

    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, timeout=PATIENCE, max_retries=0) as one:
        yield one


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of that server."""
    async with client(server) as one:
        yield one


@pytest.fixture(params=["sqlite", "postgres"])
def store_settings(request: pytest.FixtureRequest) -> str:
    """Settings for an empty store, on each engine in turn."""
    if request.param == "sqlite":
        return ""
    store_location: StoreLocation = request.getfixturevalue("postgres_location")
    return f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'


@pytest.fixture
async def pair(tmp_path: Path, model: ModelServer, store_settings: str) -> AsyncIterator[Sequence[httpx.AsyncClient]]:
    """Clients of two servers that share a store."""
    program = scripted_program(tmp_path, model, store_settings)
    async with serving(program) as one, serving(program) as other, client(one) as first, client(other) as second:
        yield first, second


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    """The API within the process of the test."""
    async with hosted(tmp_path, model) as served:
        yield served
