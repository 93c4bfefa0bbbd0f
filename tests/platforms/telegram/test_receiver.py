"""Receiving updates: when they are confirmed, and failures of the connection."""

import asyncio
from datetime import timedelta

import aiohttp
import msgspec
import pytest
from tests.platforms.telegram.far_side import free_webhook, settings_for

from talaria.contracts.platform import BatchedUpdates
from talaria.core.errors import Unreachable
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.settings import TelegramSettings
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import TelegramServer
from talaria.testing.wait import LIMIT

_HEADER = "X-Telegram-Bot-Api-Secret-Token"


async def test_update_is_confirmed_when_the_next_one_is_requested(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    async with telegram.connect() as arrivals:
        first = await chat.says(ann, "first")
        assert first.update is not None
        await next_incoming(arrivals)
        offsets = [call.parameters.get("offset") for call in server.calls if call.method == "getUpdates"]
        assert all(offset is None or int(offset) <= first.update.id for offset in offsets)
        await chat.says(ann, "second")
        await next_incoming(arrivals)
    assert int(server.calls[-1].parameters["offset"]) == first.update.id + 1


async def test_processed_update_is_confirmed_on_disconnect(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    await chat.says(ann, "first")
    await chat.says(ann, "second")
    async with telegram.connect() as arrivals:
        assert [(await next_incoming(arrivals)).text for _ in range(2)] == ["first", "second"]
    async with telegram.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "second"


async def test_updates_of_one_poll_are_available_and_confirmed_together(
    server: TelegramServer, telegram: Telegram
) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    posted = [await chat.says(ann, f"number {number}") for number in range(5)]
    async with telegram.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "number 0"
        assert isinstance(arrivals, BatchedUpdates)
        assert [one.text for one in arrivals.at_hand(3)] == ["number 1", "number 2", "number 3"]
        assert (await next_incoming(arrivals)).text == "number 4"
        assert arrivals.at_hand(3) == []
    assert posted[3].update is not None
    assert int(server.calls[-1].parameters["offset"]) == posted[3].update.id + 1


async def test_edit_without_changes_in_the_same_poll_is_not_reported(
    server: TelegramServer, telegram: Telegram
) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    posted = await chat.says(ann, "first")
    await chat.edits(posted, "first")
    await chat.says(ann, "second")
    async with telegram.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "first"
        assert isinstance(arrivals, BatchedUpdates)
        assert arrivals.at_hand(10) == []
        assert (await next_incoming(arrivals)).text == "second"


async def test_disconnect_does_not_wait_for_an_unresponsive_server(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    await chat.says(ann, "first")
    await chat.says(ann, "second")
    async with asyncio.timeout(LIMIT):
        async with telegram.connect() as arrivals:
            await next_incoming(arrivals)
            await next_incoming(arrivals)
            server.hang("getUpdates")


async def test_polling_takes_over_from_a_webhook_and_back(server: TelegramServer) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    hook = free_webhook()
    by_hook, by_poll = Telegram(settings_for(server, webhook=hook)), Telegram(settings_for(server))
    for number, platform in enumerate((by_hook, by_poll, by_hook)):
        async with platform.connect() as arrivals:
            await chat.says(ann, f"message {number}")
            while (await next_incoming(arrivals)).text != f"message {number}":
                pass
    await by_hook.close()
    await by_poll.close()


async def test_only_telegram_can_call_the_webhook(server: TelegramServer) -> None:
    hook = free_webhook()
    platform = Telegram(settings_for(server, webhook=hook))
    update = msgspec.json.encode({"update_id": 1})
    async with platform.connect(), aiohttp.ClientSession() as http:
        statuses = []
        for headers in ({}, {_HEADER: "guess"}, {_HEADER: "é"}):
            async with http.post(hook.public_url, data=update, headers=headers) as answer:
                statuses.append(answer.status)
    await platform.close()
    assert statuses == [403, 403, 403]


async def test_invalid_webhook_bodies_are_not_requested_again(server: TelegramServer) -> None:
    hook = msgspec.structs.replace(free_webhook(), secret="known")
    platform = Telegram(settings_for(server, webhook=hook))
    async with platform.connect(), aiohttp.ClientSession(headers={_HEADER: "known"}) as http:
        statuses = []
        for body in (b"{", b"[]", b'{"update_id": 1, "message": {"text": 7}}'):
            async with http.post(hook.public_url, data=body) as answer:
                statuses.append(answer.status)
    await platform.close()
    assert statuses == [400, 400, 200]


async def test_port_in_use_is_reported(server: TelegramServer) -> None:
    hook = free_webhook()
    one, other = (Telegram(settings_for(server, webhook=hook)) for _ in range(2))
    async with one.connect():
        with pytest.raises(Unreachable, match=str(hook.port)):
            async with other.connect():
                pass
    await one.close()
    await other.close()


async def test_an_unreachable_server_is_reported(server: TelegramServer) -> None:
    unused_hook = free_webhook()
    platform = Telegram(
        TelegramSettings(
            token=server.token, base_url=f"http://127.0.0.1:{unused_hook.port}/bot", patience=timedelta(seconds=2)
        )
    )
    with pytest.raises(Unreachable) as raised:
        async with platform.connect():
            pass
    await platform.close()
    assert server.token not in str(raised.value)
