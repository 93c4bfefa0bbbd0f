"""The contract suite for chat networks, run on webhooks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.platforms.webhook.far_side import WebhookFarSide, webhook_far_side

from talaria.testing.platform_suite import PlatformSuite


class TestWebhooks(PlatformSuite):
    @pytest.fixture
    async def far_side(self, tmp_path: Path) -> AsyncIterator[WebhookFarSide]:
        async with webhook_far_side(tmp_path / "routes") as there:
            yield there
