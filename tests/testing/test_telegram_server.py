"""The loopback Bot API server with a client that uses no library."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.testing.telegram_client import Client

from talaria.testing.telegram_server import TelegramServer


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TelegramServer() as server, aiohttp.ClientSession() as http:
        yield Client(server, http)


async def test_messages_are_sent_and_received(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    posted = await chat.says(ada, "Hello")
    (update,) = await client.get("getUpdates", timeout=5)
    assert update["message"]["text"] == "Hello"
    assert update["message"]["from"]["first_name"] == "Ada"
    sent = await client.get("sendMessage", chat_id=chat.id, text="Hi *Ada*", parse_mode="MarkdownV2")
    assert sent["entities"] == [{"type": "bold", "offset": 3, "length": 3}]
    seen = await chat.wait_for(lambda message: message.text == "Hi Ada")
    assert seen.styled("bold") == ["Ada"]
    assert [message.text for message in chat.messages] == ["Hello", "Hi Ada"]
    assert posted.id < seen.id


async def test_offset_confirms_earlier_updates(client: Client) -> None:
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


async def test_poll_waits_for_the_next_update(client: Client) -> None:
    ada = client.server.user("Ada")
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(client.get("getUpdates", timeout=30))
        await client.server.called("getUpdates")
        await client.server.private(ada).says(ada, "late")
    assert poll.result()[0]["message"]["text"] == "late"


async def test_newer_poll_ends_the_older_one(client: Client) -> None:
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


async def test_update_types_are_filtered_by_allowed_updates(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    posted = await chat.says(ada, "one")
    await chat.reacts(ada, posted, "👍")
    assert [set(one) for one in await client.get("getUpdates")] == [{"update_id", "message"}]
    await client.get("getUpdates", offset=-1, allowed_updates=["message_reaction"])
    await chat.reacts(ada, posted)
    await chat.says(ada, "unheard")
    updates = await client.get("getUpdates")
    assert updates[-1]["message_reaction"]["old_reaction"] == [{"type": "emoji", "emoji": "👍"}]
    assert "unheard" not in str(updates)


async def test_redelivered_update_is_returned_after_its_confirmation(client: Client) -> None:
    ada = client.server.user("Ada")
    posted = await client.server.private(ada).says(ada, "one")
    (first,) = await client.get("getUpdates")
    client.server.redeliver(posted)
    next_offset = first["update_id"] + 1
    assert [await client.get("getUpdates", offset=next_offset) for _ in range(3)] == [[first], [first], []]


async def test_message_ids_repeat_between_supergroups_but_not_elsewhere(client: Client) -> None:
    server = client.server
    ada = server.user("Ada")
    large = [server.group(name, ada, kind="supergroup") for name in ("A", "B")]
    small = [server.private(ada), server.group("C", ada)]
    assert [(await chat.says(ada, "x")).id for chat in large] == [1, 1]
    assert [(await chat.says(ada, "x")).id for chat in small] == [1, 2]


async def test_privacy_mode_hides_group_messages_for_others() -> None:
    async with TelegramServer(privacy=True) as server, aiohttp.ClientSession() as http:
        client = Client(server, http)
        ada = server.user("Ada")
        group = server.group("Family", ada)
        await client.get("sendMessage", chat_id=group.id, text="Here I am")
        await group.says(ada, "among us")
        await group.says(ada, "/stop@other_bot")
        await group.says(ada, "what is this", mention=True)
        await group.says(ada, "/help me")
        await group.says(ada, "thanks", reply_to=group.answers[0])
        texts = [one["message"]["text"] for one in await client.get("getUpdates")]
    assert texts == ["@talaria_bot what is this", "/help me", "thanks"]


async def test_bot_gets_no_updates_of_a_group_that_it_left(client: Client) -> None:
    ada = client.server.user("Ada")
    group = client.server.group("Family", ada)
    await client.get("leaveChat", chat_id=group.id)
    assert (await group.says(ada, "alone")).update is None
    assert await client.refused("sendMessage", chat_id=group.id, text="x") == (
        "Forbidden: bot is not a member of the group chat"
    )


async def test_channel_posts_have_no_sender(client: Client) -> None:
    channel = client.server.group("News", kind="channel", username="news_of_tests")
    await channel.says(None, "read all about it")
    (update,) = await client.get("getUpdates")
    assert "from" not in update["channel_post"]
    sent = await client.get("sendMessage", chat_id="@news_of_tests", text="more")
    assert [message.id for message in channel.answers] == [sent["message_id"]]
    await client.get("editMessageText", chat_id=channel.id, message_id=sent["message_id"], text="less")
    assert channel.answers[0].history[0].text == "more"


async def test_message_in_a_topic_replies_to_the_notice_that_opened_it(client: Client) -> None:
    ada = client.server.user("Ada")
    forum = client.server.forum("Forum", ada)
    created = await client.get("createForumTopic", chat_id=forum.id, name="Plans")
    thread = created["message_thread_id"]
    await forum.says(ada, "hello", thread=thread)
    (update,) = await client.get("getUpdates")
    assert update["message"]["is_topic_message"] is True
    assert update["message"]["reply_to_message"]["message_id"] == thread
    assert update["message"]["reply_to_message"]["forum_topic_created"]["name"] == "Plans"
    sent = await client.get("sendMessage", chat_id=forum.id, text="yes", reply_parameters={"message_id": 2})
    assert sent["message_thread_id"] == thread


async def test_buttons_are_answered_once(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    buttons = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}, {"text": "Web", "url": "https://a.test"}]]}
    await client.get("sendMessage", chat_id=chat.id, text="Sure?", reply_markup=buttons)
    press = await chat.presses(ada, chat.answers[0], "Yes")
    await client.get("answerCallbackQuery", callback_query_id=press.query_id, text="Fine", show_alert=True)
    assert (await press.answered(), press.alert) == ("Fine", True)
    assert "query is too old" in await client.refused("answerCallbackQuery", callback_query_id=press.query_id)
    with pytest.raises(LookupError, match="no such button"):
        await chat.presses(ada, chat.answers[0], "Web")


async def test_timed_out_wait_lists_the_messages_of_the_chat(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    await chat.says(ada, "Anybody?")
    with pytest.raises(TimeoutError, match=r"within 0.01 s. The chat has: \['Anybody\?'\]"):
        await chat.wait_for(lambda _: True, within=0.01)
