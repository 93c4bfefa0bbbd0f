"""The contract suite for chat networks, run on networks whose test server needs no extra software."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts.loopback_far_side import LoopbackFarSide, loopback_far_side
from tests.platforms.telegram.far_side import TelegramFarSide, telegram_far_side

from talaria.testing.platform_suite import PlatformSuite


class TestTelegramByPolling(PlatformSuite, lacks={"servers", "idempotent"}):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[TelegramFarSide]:
        async with telegram_far_side() as there:
            yield there


class TestTelegramByWebhook(PlatformSuite, lacks={"servers", "idempotent", "deaf"}):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[TelegramFarSide]:
        async with telegram_far_side(webhook=True) as there:
            yield there


class TestLoopback(PlatformSuite, lacks={"servers", "groups", "redelivery", "idempotent"}):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[LoopbackFarSide]:
        async with loopback_far_side(idempotent=False) as there:
            yield there


class TestIdempotentLoopback(PlatformSuite, lacks={"servers", "groups", "redelivery"}):
    @pytest.fixture
    async def far_side(self) -> AsyncIterator[LoopbackFarSide]:
        async with loopback_far_side(idempotent=True) as there:
            yield there
