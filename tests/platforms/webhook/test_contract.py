"""The contract suite for chat networks, run on webhooks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.platforms.webhook.far_side import WebhookFarSide, webhook_far_side

from talaria.testing.platform_suite import FailuresSuite, ReceivingSuite, SendingSuite


class TestWebhooks(
    ReceivingSuite, SendingSuite, FailuresSuite, lacks={"servers", "edits", "buttons", "typing", "deaf", "revoked"}
):
    """Webhooks have no groups, threads, reactions or files."""

    @pytest.fixture
    async def far_side(self, tmp_path: Path) -> AsyncIterator[WebhookFarSide]:
        async with webhook_far_side(tmp_path / "routes") as there:
            yield there

    def test_skipped_suites_match_the_features_that_webhooks_lack(self, far_side: WebhookFarSide) -> None:
        abilities = far_side.platform.abilities
        assert (far_side.group, far_side.thread) == (None, None)
        assert (abilities.file_limit, abilities.reactions) == (0, False)
