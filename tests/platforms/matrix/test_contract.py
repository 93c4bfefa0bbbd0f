"""The contract suite for chat networks, on a real homeserver."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.platforms.matrix.far_side import MatrixFarSide, SharedRooms, matrix_far_side

from talaria.testing.homeserver import HomeserverClient
from talaria.testing.platform_suite import PlatformSuite


@pytest.fixture(scope="session")
def rooms(homeserver_client: HomeserverClient) -> SharedRooms:
    return SharedRooms(homeserver_client)


class TestMatrix(PlatformSuite, lacks={"redelivery"}):
    @pytest.fixture
    async def far_side(self, rooms: SharedRooms, tmp_path: Path) -> AsyncIterator[MatrixFarSide]:
        async with matrix_far_side(rooms, tmp_path) as opened:
            yield opened
