"""Discord through the contract suite for chat networks."""

from collections.abc import AsyncIterator

import pytest
from tests.platforms.discord.far_side import DiscordFarSide, discord_far_side

from talaria.testing.platform_suite import PlatformSuite


class TestDiscord(PlatformSuite):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[DiscordFarSide]:
        async with discord_far_side() as there:
            yield there
