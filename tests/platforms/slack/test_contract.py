"""The contract suite for chat networks, on a Slack workspace on loopback."""

from collections.abc import AsyncIterator

import pytest
from tests.platforms.slack.far_side import SlackFarSide, slack_far_side

from talaria.testing.platform_suite import PlatformSuite


class TestSlack(PlatformSuite, lacks={"idempotent"}):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[SlackFarSide]:
        async with slack_far_side() as there:
            yield there
