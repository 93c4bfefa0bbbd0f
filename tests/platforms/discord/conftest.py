"""A Discord server on loopback, and the adapter of its bot."""

from collections.abc import AsyncIterator

import pytest
from tests.platforms.discord.far_side import settings_for

from talaria.platforms.discord.adapter import Discord
from talaria.testing.discord_server import DiscordServer

COMMANDS = [("status", "How things are"), ("not a name", "x"), ("new", "Begin anew")]


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(heartbeat=0.5) as there:
        yield there


@pytest.fixture
async def discord(server: DiscordServer) -> AsyncIterator[Discord]:
    platform = Discord(settings_for(server), COMMANDS)
    yield platform
    await platform.close()
