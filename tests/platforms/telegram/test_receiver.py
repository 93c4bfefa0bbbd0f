"""How updates are received: what is confirmed when, and what happens when the line is bad."""

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


async def test_an_update_is_confirmed_no_sooner_than_the_next_is_asked_for(
    server: TelegramServer, telegram: Telegram
) -> None:
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


async def test_what_was_taken_is_confirmed_on_leaving(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    await chat.says(ann, "first")
    await chat.says(ann, "second")
    async with telegram.connect() as arrivals:
        assert [(await next_incoming(arrivals)).text for _ in range(2)] == ["first", "second"]
    async with telegram.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "second"


async def test_what_one_poll_brings_is_at_hand_together_and_confirmed_together(
    server: TelegramServer, telegram: Telegram
) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    said = [await chat.says(ann, f"number {number}") for number in range(5)]
    async with telegram.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "number 0"
        assert isinstance(arrivals, BatchedUpdates)
        assert [one.text for one in arrivals.at_hand(3)] == ["number 1", "number 2", "number 3"]
        assert (await next_incoming(arrivals)).text == "number 4"
        assert arrivals.at_hand(3) == []
    assert said[3].update is not None
    assert int(server.calls[-1].parameters["offset"]) == said[3].update.id + 1


async def test_an_edit_that_changes_nothing_is_no_news_though_it_comes_with_its_message(
    server: TelegramServer, telegram: Telegram
) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    said = await chat.says(ann, "first")
    await chat.edits(said, "first")
    await chat.says(ann, "second")
    async with telegram.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "first"
        assert isinstance(arrivals, BatchedUpdates)
        assert arrivals.at_hand(10) == []
        assert (await next_incoming(arrivals)).text == "second"


async def test_leaving_does_not_wait_for_a_network_that_is_gone(server: TelegramServer, telegram: Telegram) -> None:
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


async def test_nonsense_from_the_webhook_is_not_asked_for_again(server: TelegramServer) -> None:
    hook = msgspec.structs.replace(free_webhook(), secret="known")
    platform = Telegram(settings_for(server, webhook=hook))
    async with platform.connect(), aiohttp.ClientSession(headers={_HEADER: "known"}) as http:
        statuses = []
        for body in (b"{", b"[]", b'{"update_id": 1, "message": {"text": 7}}'):
            async with http.post(hook.public_url, data=body) as answer:
                statuses.append(answer.status)
    await platform.close()
    assert statuses == [400, 400, 200]


async def test_a_port_that_is_taken_is_reported(server: TelegramServer) -> None:
    hook = free_webhook()
    one, other = (Telegram(settings_for(server, webhook=hook)) for _ in range(2))
    async with one.connect():
        with pytest.raises(Unreachable, match=str(hook.port)):
            async with other.connect():
                pass
    await one.close()
    await other.close()


async def test_an_unreachable_server_is_reported(server: TelegramServer) -> None:
    nobody = free_webhook()
    platform = Telegram(
        TelegramSettings(
            token=server.token, base_url=f"http://127.0.0.1:{nobody.port}/bot", patience=timedelta(seconds=2)
        )
    )
    with pytest.raises(Unreachable) as raised:
        async with platform.connect():
            pass
    await platform.close()
    assert server.token not in str(raised.value)
