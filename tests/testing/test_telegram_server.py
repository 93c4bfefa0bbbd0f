"""The loopback Bot API server as a client without a library sees it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from talaria.testing.telegram_server import TelegramServer


class Client:
    """Calls methods by JSON."""

    def __init__(self, server: TelegramServer, http: aiohttp.ClientSession) -> None:
        self.server = server
        self.http = http

    async def ask(self, method: str, **parameters: object) -> Any:
        """Return the whole answer."""
        async with self.http.post(f"{self.server.base_url}{self.server.token}/{method}", json=parameters) as response:
            answer = await response.json()
        assert answer["ok"] == (response.status == 200)
        assert response.status == answer.get("error_code", 200)
        return answer

    async def get(self, method: str, **parameters: object) -> Any:
        """Return the result."""
        answer = await self.ask(method, **parameters)
        assert answer["ok"], answer
        return answer["result"]

    async def refused(self, method: str, **parameters: object) -> str:
        """Return why it was refused."""
        answer = await self.ask(method, **parameters)
        assert not answer["ok"], answer
        return str(answer["description"])


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TelegramServer() as server, aiohttp.ClientSession() as http:
        yield Client(server, http)


async def test_words_go_both_ways(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    said = await chat.says(ada, "Hello")
    (update,) = await client.get("getUpdates", timeout=5)
    assert update["message"]["text"] == "Hello"
    assert update["message"]["from"]["first_name"] == "Ada"
    sent = await client.get("sendMessage", chat_id=chat.id, text="Hi *Ada*", parse_mode="MarkdownV2")
    assert sent["entities"] == [{"type": "bold", "offset": 3, "length": 3}]
    seen = await chat.wait_for(lambda message: message.text == "Hi Ada")
    assert seen.styled("bold") == ["Ada"]
    assert [message.text for message in chat.messages] == ["Hello", "Hi Ada"]
    assert said.id < seen.id


async def test_an_offset_confirms_what_lies_before_it(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    for text in ("one", "two", "three"):
        await chat.says(ada, text)
    first = await client.get("getUpdates", limit=1)
    assert await client.get("getUpdates", limit=1) == first
    rest = await client.get("getUpdates", offset=first[0]["update_id"] + 1)
    assert [one["message"]["text"] for one in rest] == ["two", "three"]
    assert await client.get("getUpdates", offset=rest[-1]["update_id"] + 1) == []
    assert await client.get("getUpdates") == []


async def test_a_poll_waits_for_what_comes(client: Client) -> None:
    ada = client.server.user("Ada")
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(client.get("getUpdates", timeout=30))
        await client.server.called("getUpdates")
        await client.server.private(ada).says(ada, "late")
    assert poll.result()[0]["message"]["text"] == "late"


async def test_whoever_polls_last_takes_over(client: Client) -> None:
    ada = client.server.user("Ada")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(client.ask("getUpdates", timeout=30))
        await client.server.called("getUpdates")
        second = group.create_task(client.get("getUpdates", timeout=30))
        await client.server.called("getUpdates", 2)
        await client.server.private(ada).says(ada, "for the second")
    assert first.result()["error_code"] == 409
    assert first.result()["description"].startswith("Conflict: terminated by other getUpdates request")
    assert second.result()[0]["message"]["text"] == "for the second"
