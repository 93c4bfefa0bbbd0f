"""A dead gateway connection is detected in time and replaced."""

from datetime import timedelta

import pytest
from tests.platforms.dead_connection import Wire, running_receiver
from tests.platforms.discord.far_side import settings_for

from talaria.contracts.store import Store
from talaria.platforms.discord.adapter import Discord
from talaria.testing.discord_server import DiscordServer

QUICK = timedelta(seconds=2)


@pytest.mark.one_engine
@pytest.mark.slow
async def test_dead_discord_connection_is_resumed(store: Store) -> None:
    async with DiscordServer(heartbeat=0.3) as server, Wire(server.url) as wire:
        server.gateway.public_url = wire.url
        ann = server.user("Ann")
        room = server.private(ann)
        settings = settings_for(server, api_url=f"{wire.url}/api/v10", patience=QUICK, silence=QUICK)
        discord = Discord(settings)
        async with running_receiver(discord, store) as there:
            await there.until("connected")
            await room.says(ann, "before")
            await there.until("connected", "before")
            wire.die()
            await room.says(ann, "meanwhile")
            await there.until("waiting")
            wire.revive()
            await room.says(ann, "after")
            await there.until("connected", "before", "meanwhile", "after")
        await discord.close()
    assert server.gateway.logins[-1] == "resume"
