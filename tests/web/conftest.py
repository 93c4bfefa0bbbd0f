"""A server with a scripted model, and browsers that are signed in to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.api.in_process_server import Hosted, hosted
from tests.web.web_client import web_client

from talaria.testing.model_server import ModelServer

PEOPLE = '[people.alice]\nids = ["telegram:7"]\n[people.bob]\nids = ["telegram:8"]\n[gateway]\ndrain_seconds = 1.0\n'


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path, model, PEOPLE) as server:
        yield server


@pytest.fixture
async def owner(host: Hosted) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(host) as client:
        yield client


@pytest.fixture
async def alice(host: Hosted) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(host, person="alice") as client:
        yield client
