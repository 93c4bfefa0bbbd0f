"""A Bot API server on loopback, and the adapter of its bot."""

from collections.abc import AsyncIterator

import pytest
from tests.platforms.telegram.far_side import settings_for

from talaria.platforms.telegram.adapter import Telegram
from talaria.testing.telegram_server import TelegramServer


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(topics=True) as there:
        yield there


@pytest.fixture
async def telegram(server: TelegramServer) -> AsyncIterator[Telegram]:
    platform = Telegram(
        settings_for(server), [("status", "How things are"), ("not a name", "x"), ("new", "Begin anew")]
    )
    yield platform
    await platform.close()
