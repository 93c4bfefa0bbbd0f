"""A sync over a dead connection is detected in time and repeated."""

import asyncio
from datetime import timedelta

import pytest
from tests.platforms.dead_connection import Wire, running_receiver
from tests.platforms.matrix.matrix_clients import BotAccount, Person

from talaria.contracts.store import Store

QUICK = timedelta(seconds=2)


@pytest.mark.one_engine
async def test_sync_is_repeated_after_the_connection_died_silently(
    bot_account: BotAccount, alice: Person, store: Store
) -> None:
    room = alice.room_with(bot_account.user_id)
    Person(alice.homeserver_client, bot_account.account).join(room)
    async with Wire(bot_account.settings.homeserver) as wire:
        matrix = bot_account.open(homeserver=wire.url, patience=QUICK, poll=timedelta(seconds=1))
        async with running_receiver(matrix, store) as running:
            await running.until("connected")
            await asyncio.to_thread(alice.say, room, "before")
            await running.until("connected", "before")
            wire.die()
            await asyncio.to_thread(alice.say, room, "meanwhile")
            await running.until("waiting")
            assert "doesn't answer" in running.receiver.status.error
            await running.until("connecting")
            await running.until("waiting")
            wire.revive()
            await asyncio.to_thread(alice.say, room, "after")
            await running.until("connected", "before", "meanwhile", "after")
        await matrix.close()
