"""A sync over a dead connection is detected in time and repeated."""

import asyncio
from datetime import timedelta

import pytest
from tests.platforms.dead_connection import Wire, running_receiver
from tests.platforms.matrix.matrix_clients import BotAccount, Person

from talaria.contracts.store import Store

QUICK = timedelta(seconds=2)


@pytest.mark.one_engine
async def test_a_homeserver_that_falls_silent_is_synced_with_again(
    bot_account: BotAccount, alice: Person, store: Store
) -> None:
    room = alice.room_with(bot_account.user_id)
    Person(alice.homeserver_client, bot_account.account).join(room)
    async with Wire(bot_account.settings.homeserver) as wire:
        matrix = bot_account.open(homeserver=wire.url, patience=QUICK, poll=timedelta(seconds=1))
        async with running_receiver(matrix, store) as there:
            await there.until("connected")
            await asyncio.to_thread(alice.say, room, "before")
            await there.until("connected", "before")
            wire.die()
            await asyncio.to_thread(alice.say, room, "meanwhile")
            await there.until("waiting")
            assert "doesn't answer" in there.receiver.status.error
            await there.until("connecting")
            await there.until("waiting")
            wire.revive()
            await asyncio.to_thread(alice.say, room, "after")
            await there.until("connected", "before", "meanwhile", "after")
        await matrix.close()
