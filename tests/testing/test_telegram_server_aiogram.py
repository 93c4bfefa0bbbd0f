"""The loopback Telegram server with aiogram: a second opinion, with its own typed models."""

from collections.abc import AsyncIterator

import pytest
from tests.testing import telegram_scenarios
from tests.testing.telegram_scenarios import Library, Scenarios

from talaria.testing.telegram_server import TelegramServer

server = telegram_scenarios.server


class TestAiogram(Scenarios):
    @pytest.fixture
    async def library(self, server: TelegramServer) -> AsyncIterator[Library]:
        from tests.testing.aiogram_client import Aiogram  # noqa: PLC0415 (seconds to import, only where it is used)

        library = Aiogram(server)
        yield library
        await library.close()
