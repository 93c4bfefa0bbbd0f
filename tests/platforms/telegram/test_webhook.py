"""Webhook specifics: albums whose updates arrive one by one, and webhooks that are no longer called."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.platforms.telegram.far_side import free_webhook, settings_for

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Store
from talaria.core.errors import Unreachable
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.receiver import DurableAlbumStore
from talaria.platforms.telegram.settings import Webhook
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import Document, Photo, TelegramServer
from talaria.testing.wait import LIMIT, until


@asynccontextmanager
async def receive_by_webhook(
    server: TelegramServer, hook: Webhook, state_store: DurableAlbumStore | None = None
) -> AsyncIterator[AsyncIterator[Incoming]]:
    platform = Telegram(settings_for(server, webhook=hook), state_store=state_store)
    try:
        async with platform.connect() as arrivals:
            yield arrivals
    finally:
        await platform.close()


async def test_an_album_is_one_message(server: TelegramServer) -> None:
    ann, bob = server.user("Ann"), server.user("Bob")
    chat = server.private(ann)
    await chat.says(ann, "before")
    await chat.sends_album(ann, [Photo(), Photo(), Photo()], caption="the trip")
    await chat.sends_album(ann, [Document(b"a"), Document(b"b")])
    async with receive_by_webhook(server, free_webhook()) as arrivals:
        first, album, other = [await next_incoming(arrivals) for _ in range(3)]
        await server.private(bob).says(bob, "behind")
        last = await next_incoming(arrivals)
    assert [one.text for one in (first, album, other, last)] == ["before", "the trip", "", "behind"]
    assert [len(one.attachments) for one in (first, album, other, last)] == [0, 3, 2, 0]


async def test_unconfirmed_album_is_delivered_again_after_a_restart(server: TelegramServer, store: Store) -> None:
    ann = server.user("Ann")
    hook = free_webhook()
    await server.private(ann).sends_album(ann, [Photo(), Photo()], caption="the trip")
    async with receive_by_webhook(server, hook, DurableAlbumStore(store, "telegram")) as arrivals:
        first = await next_incoming(arrivals)
        await until(lambda: [one.status for one in server.deliveries] == [200, 200])
    async with receive_by_webhook(server, hook, DurableAlbumStore(store, "telegram")) as arrivals:
        redelivered = await next_incoming(arrivals)
        await server.private(ann).says(ann, "behind")
        assert (await next_incoming(arrivals)).text == "behind"
    async with receive_by_webhook(server, hook, DurableAlbumStore(store, "telegram")) as arrivals:
        assert (await next_incoming(arrivals)).text == "behind"
    assert (redelivered.external_id, redelivered.text, redelivered.attachments) == (
        first.external_id,
        "the trip",
        first.attachments,
    )


async def test_a_webhook_removed_by_another_program_is_noticed(server: TelegramServer) -> None:
    async with receive_by_webhook(server, free_webhook()) as arrivals:
        server.world.webhook.point("", "", 1)
        with pytest.raises(Unreachable, match="removed by another program"):
            await next_incoming(arrivals)


async def test_a_webhook_that_telegram_cannot_reach_is_noticed(server: TelegramServer) -> None:
    ann = server.user("Ann")
    hook = free_webhook()
    shut = Webhook(public_url=free_webhook().public_url, host=hook.host, port=hook.port)
    async with receive_by_webhook(server, shut) as arrivals:
        await server.private(ann).says(ann, "hello?")
        async with asyncio.timeout(LIMIT):
            with pytest.raises(Unreachable, match="can't deliver"):
                await next_incoming(arrivals)
