"""A dead WebSocket is detected in time and replaced."""

import pytest
from tests.platforms.dead_connection import Wire, running_receiver
from tests.platforms.slack.far_side import settings_for

from talaria.contracts.store import Store
from talaria.platforms.slack.adapter import Slack
from talaria.testing.slack_server import SlackServer


@pytest.mark.one_engine
@pytest.mark.slow
async def test_dead_slack_connection_is_replaced(store: Store) -> None:
    async with SlackServer() as server, Wire(server.world.url) as wire:
        server.world.url = wire.url
        ann = server.user("Ann")
        chat = server.direct(ann)
        slack = Slack(settings_for(server))
        async with running_receiver(slack, store) as there:
            await chat.says(ann, "before")
            await there.until("connected", "before")
            wire.die()
            await chat.says(ann, "meanwhile")
            await there.until("waiting")
            assert "lost" in there.receiver.status.error
            await there.until("connecting")
            await there.until("waiting")
            assert wire.dropped
            wire.revive()
            server.hub.cut()
            await chat.says(ann, "after")
            await there.until("connected", "before", "meanwhile", "after")
        await slack.close()
