"""The contract suite for chat networks, on a real homeserver."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.platforms.matrix.far_side import MatrixFarSide, matrix_far_side

from talaria.testing.homeserver import HomeserverClient
from talaria.testing.platform_suite import PlatformSuite


class TestMatrix(PlatformSuite, lacks={"redelivery"}):
    @pytest.fixture
    async def far_side(self, homeserver_client: HomeserverClient, tmp_path: Path) -> AsyncIterator[MatrixFarSide]:
        async with matrix_far_side(homeserver_client, tmp_path) as there:
            yield there
