"""Faults on demand, and webhook deliveries that are repeated until they succeed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.testing.telegram_client import Client

from talaria.testing.telegram_server import Chat, TelegramServer
from talaria.testing.wait import LIMIT


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TelegramServer() as server, aiohttp.ClientSession() as http:
        yield Client(server, http)


@pytest.fixture
def chat(client: Client) -> Chat:
    return client.server.private(client.server.user("Ada"))


@pytest.mark.slow
async def test_flood_control_ends_after_its_delay(client: Client, chat: Chat) -> None:
    client.server.flood(after=1, retry_after=1)
    await client.get("sendMessage", chat_id=chat.id, text="one")
    answer = await client.ask("sendMessage", chat_id=chat.id, text="two")
    assert (answer["error_code"], answer["parameters"]) == (429, {"retry_after": 1})
    assert answer["description"] == "Too Many Requests: retry after 1"
    await client.get("sendChatAction", chat_id=chat.id, action="typing")
    async with asyncio.timeout(LIMIT):
        while not (await client.ask("sendMessage", chat_id=chat.id, text="two"))["ok"]:
            pass
    assert [message.text for message in chat.messages] == ["one", "two"]


async def test_a_method_fails_the_configured_number_of_times(client: Client, chat: Chat) -> None:
    client.server.fail("sendMessage", 502, 2)
    for _ in range(2):
        assert (await client.ask("sendMessage", chat_id=chat.id, text="x"))["error_code"] == 502
    await client.get("sendMessage", chat_id=chat.id, text="x")
    client.server.fail("*", 403, description="Forbidden: user is deactivated")
    assert await client.refused("getMe") == "Forbidden: user is deactivated"
    assert len(chat.messages) == 1


@pytest.mark.parametrize("done", [False, True])
async def test_hanging_call_gets_no_answer(client: Client, chat: Chat, done: bool) -> None:
    client.server.hang("sendMessage", done=done)
    async with asyncio.TaskGroup() as group:
        call = group.create_task(client.ask("sendMessage", chat_id=chat.id, text="x"))
        await client.server.called("sendMessage")
        await chat.wait_until(lambda: len(chat.messages) == done)
        assert not call.done()
        call.cancel()
    client.server.recover()
    await client.get("sendMessage", chat_id=chat.id, text="x")
    assert len(chat.messages) == 1 + done


@pytest.mark.parametrize("done", [False, True])
async def test_lost_answer_breaks_the_connection(client: Client, chat: Chat, done: bool) -> None:
    client.server.lose("sendMessage", done=done)
    with pytest.raises(aiohttp.ClientError):
        await client.ask("sendMessage", chat_id=chat.id, text="x")
    assert len(chat.messages) == done


async def test_dropped_connections_lose_no_update(client: Client, chat: Chat) -> None:
    ada = client.server.user("Ada")

    async def poll() -> None:
        with pytest.raises(aiohttp.ClientError):
            await client.ask("getUpdates", timeout=30)

    async with asyncio.TaskGroup() as group:
        group.create_task(poll())
        await client.server.called("getUpdates")
        client.server.drop_connections()
    await chat.says(ada, "still here")
    assert (await client.get("getUpdates"))[0]["message"]["text"] == "still here"


@asynccontextmanager
async def receiver(*statuses: int) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """Accept posts and answer with these statuses, then with 200."""
    remaining, requests = list(statuses), []

    async def accept(request: web.Request) -> web.Response:
        await request.read()
        requests.append(request)
        return web.Response(status=remaining.pop(0) if remaining else 200)

    application = web.Application()
    application.router.add_post("/hook", accept)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", requests
    await runner.cleanup()


async def test_webhook_delivery_is_retried_until_it_succeeds(client: Client, chat: Chat) -> None:
    ada = client.server.user("Ada")
    async with receiver(500, 502) as (url, requests):
        await client.get("setWebhook", url=url, secret_token="s3cret", allowed_updates=["message"])
        await chat.says(ada, "one")
        await chat.says(ada, "two")
        await chat.wait_until(lambda: len(client.server.deliveries) == 4)
        delivered = [(one.update.body["text"], one.status) for one in client.server.deliveries]
        assert delivered == [("one", 500), ("one", 502), ("one", 200), ("two", 200)]
        assert {one.headers["X-Telegram-Bot-Api-Secret-Token"] for one in requests} == {"s3cret"}
        info = await client.get("getWebhookInfo")
        assert info["last_error_message"] == "Wrong response from the webhook: 502 Bad Gateway"
        assert (info["pending_update_count"], info["allowed_updates"]) == (0, ["message"])
        assert (await client.refused("getUpdates")).startswith("Conflict: can't use getUpdates method while webhook")


async def test_redelivered_update_is_posted_three_times_to_the_webhook(client: Client, chat: Chat) -> None:
    async with receiver() as (url, _):
        await client.get("setWebhook", url=url)
        client.server.redeliver(await chat.says(client.server.user("Ada"), "again"))
        await chat.wait_until(lambda: len(client.server.deliveries) == 3)
        assert len({one.update.id for one in client.server.deliveries}) == 1


async def test_updates_of_a_dead_webhook_can_be_polled(client: Client, chat: Chat) -> None:
    async with receiver() as (url, _):
        pass
    await client.get("setWebhook", url=url)
    await chat.says(client.server.user("Ada"), "kept")
    await chat.wait_until(lambda: len(client.server.deliveries) >= 2)
    assert (await client.get("getWebhookInfo"))["pending_update_count"] == 1
    await client.get("deleteWebhook")
    assert (await client.get("getUpdates"))[0]["message"]["text"] == "kept"
    assert await client.get("setWebhook", url="", drop_pending_updates=True)
    assert await client.get("getUpdates") == []


async def test_setting_a_webhook_ends_a_poll(client: Client) -> None:
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(client.ask("getUpdates", timeout=30))
        await client.server.called("getUpdates")
        await client.get("setWebhook", url="http://127.0.0.1:9/none")
    assert poll.result()["description"] == "Conflict: terminated by setWebhook request"
