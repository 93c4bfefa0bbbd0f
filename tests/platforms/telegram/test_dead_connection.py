"""A poll over a dead connection is detected in time and repeated."""

from datetime import timedelta

import pytest
from msgspec import structs
from tests.platforms.dead_connection import Wire, running_receiver
from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.store import Store
from talaria.platforms.telegram.adapter import Telegram
from talaria.testing.telegram_server import TelegramServer

QUICK = timedelta(seconds=2)


@pytest.mark.one_engine
@pytest.mark.slow
async def test_telegram_is_polled_again_after_a_dead_connection(store: Store) -> None:
    async with TelegramServer() as server, Wire(server.url) as wire:
        ann = server.user("Ann")
        chat = server.private(ann)
        telegram = Telegram(structs.replace(settings_for(server), base_url=f"{wire.url}/bot", patience=QUICK))
        async with running_receiver(telegram, store) as there:
            await chat.says(ann, "before")
            await there.until("connected", "before")
            wire.die()
            await chat.says(ann, "meanwhile")
            await there.until("waiting")
            assert "didn't answer" in there.receiver.status.error
            await there.until("connecting")
            await there.until("waiting")
            assert wire.dropped
            wire.revive()
            await chat.says(ann, "after")
            await there.until("connected", "before", "meanwhile", "after")
        await telegram.close()
