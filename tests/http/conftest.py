"""API server within the test process, with a scripted model, to test the HTTP layer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.api.in_process_server import Hosted, hosted

from talaria.testing.model_server import ModelServer


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A scripted model."""
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def host(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    """The API within the process of the test."""
    async with hosted(tmp_path, model) as served:
        yield served
