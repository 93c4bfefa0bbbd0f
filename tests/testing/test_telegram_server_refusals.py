"""Invalid requests are refused by the loopback server with Telegram's error texts."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.testing.telegram_client import Client

from talaria.testing.telegram_server import TelegramServer, picture


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TelegramServer() as server, aiohttp.ClientSession() as http:
        server.private(server.user("Ada"))
        yield Client(server, http)


@pytest.fixture
def ada(client: Client) -> int:
    return client.server.user("Ada").id


async def test_unknown_method_and_wrong_token_are_refused(client: Client) -> None:
    assert await client.ask("paintTheWall") == {"ok": False, "error_code": 404, "description": "Not Found"}
    async with client.http.get(f"{client.server.base_url}1:wrong/getMe") as response:
        assert await response.json() == {"ok": False, "error_code": 401, "description": "Unauthorized"}


@pytest.mark.parametrize(
    ("method", "parameters", "reason"),
    [
        ("sendMessage", {"text": "x"}, "chat_id is empty"),
        ("sendMessage", {"chat_id": "ada"}, "message text is empty"),
        ("sendMessage", {"chat_id": "ada", "text": "   "}, "message text is empty"),
        ("sendMessage", {"chat_id": "ada", "text": "**", "parse_mode": "MarkdownV2"}, "message text is empty"),
        ("sendMessage", {"chat_id": "ada", "text": 4097 * "x"}, "message is too long"),
        ("sendMessage", {"chat_id": "ada", "text": 2049 * "😀"}, "message is too long"),
        ("sendMessage", {"chat_id": 12, "text": "x"}, "chat not found"),
        ("sendMessage", {"chat_id": "@nobody", "text": "x"}, "chat not found"),
        ("sendMessage", {"chat_id": "ada", "text": "x", "colour": "red"}, 'unknown parameter "colour"'),
        ("sendMessage", {"chat_id": "ada", "text": 7}, "can't parse text: Expected `str`, got `int`"),
        ("sendMessage", {"chat_id": [1], "text": "x"}, "can't parse chat_id"),
        ("sendMessage", {"chat_id": 1.5, "text": "x"}, "can't parse chat_id"),
        ("sendMessage", {"chat_id": "ada", "text": "x", "parse_mode": "BBCode"}, "unsupported parse_mode"),
        ("sendMessage", {"chat_id": "ada", "text": "x", "message_thread_id": 5}, "message thread not found"),
        ("sendMessage", {"chat_id": "ada", "text": "x", "message_thread_id": True}, "can't parse message_thread_id"),
        ("sendMessage", {"chat_id": "ada", "text": "x", "disable_notification": "maybe"}, "can't parse disable_not"),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "reply_parameters": {"message_id": 99}},
            "message to be replied not found",
        ),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "reply_parameters": {"message_id": "1"}},
            "can't parse reply_parameters: Expected `int`, got `str`",
        ),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "link_preview_options": {"disabled": True}},
            "can't parse link_preview_options: Object contains unknown field `disabled`",
        ),
        ("sendMessage", {"chat_id": "ada", "text": "x", "reply_markup": {}}, "object expected as reply markup"),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "reply_markup": {"inline_keyboard": [[{"text": "A"}]]}},
            "text buttons are unallowed in the inline keyboard",
        ),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "entities": [{"type": "bold", "offset": 0, "length": 2}]},
            "entity ends after the end of the text at byte offset 1",
        ),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "é😀", "entities": [{"type": "bold", "offset": 2, "length": 1}]},
            "entity begins in a middle of a UTF-16 symbol at byte offset 2",
        ),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "entities": [{"type": "text_link", "offset": 0, "length": 1}]},
            "can't parse MessageEntity: Can't find field \"url\"",
        ),
        (
            "sendMessage",
            {"chat_id": "ada", "text": "x", "entities": [{"type": "loud", "offset": 0, "length": 1}]},
            "can't parse entities",
        ),
        ("editMessageText", {"chat_id": "ada", "message_id": 99, "text": "x"}, "message to edit not found"),
        ("editMessageText", {"text": "x", "message_id": 1}, "chat_id is empty"),
        ("deleteMessage", {"chat_id": "ada", "message_id": 99}, "message to delete not found"),
        ("sendChatAction", {"chat_id": "ada", "action": "dance"}, "wrong parameter action in request"),
        ("sendPhoto", {"chat_id": "ada"}, "there is no photo in the request"),
        ("sendPhoto", {"chat_id": "ada", "photo": "attach://a"}, "there is no file with the name a in the request"),
        ("getFile", {"file_id": "nothing"}, "invalid file_id"),
        ("setMyCommands", {"commands": [{"command": "New!", "description": "x"}]}, "BOT_COMMAND_INVALID"),
        ("setWebhook", {"url": "ftp://x"}, "bad webhook: An HTTPS URL must be provided for webhook"),
        ("setWebhook", {"url": "https://x.test", "secret_token": "a b"}, "secret token contains unallowed characters"),
        ("createForumTopic", {"chat_id": "ada", "name": "x"}, "the chat is not a forum"),
        ("leaveChat", {"chat_id": "ada"}, "chat member status can't be changed in private chats"),
    ],
)
async def test_bad_request_is_refused_with_its_reason(
    client: Client, ada: int, method: str, parameters: dict[str, Any], reason: str
) -> None:
    replaced = {name: ada if (name, value) == ("chat_id", "ada") else value for name, value in parameters.items()}
    answer = await client.ask(method, **replaced)
    assert answer["error_code"] == 400
    assert answer["description"].startswith(f"Bad Request: {reason}")
    assert client.server.private(client.server.user("Ada")).messages == []


async def test_text_at_the_length_limit_is_accepted(client: Client, ada: int) -> None:
    for text in (4096 * "x", 2048 * "😀", "*" + 4096 * "y" + "*"):
        await client.get("sendMessage", chat_id=ada, text=text, parse_mode="MarkdownV2")


async def test_form_may_contain_numbers_and_objects_as_text(client: Client, ada: int) -> None:
    form = {"chat_id": str(ada), "text": "x", "disable_notification": "true"}
    form["reply_markup"] = '{"inline_keyboard": [[{"text": "A", "callback_data": "a"}]]}'
    async with client.http.post(client.address("sendMessage"), data=form) as response:
        assert (await response.json())["result"]["reply_markup"]["inline_keyboard"][0][0]["text"] == "A"
    async with client.http.get(client.address("sendMessage"), params={"chat_id": str(ada), "text": "y"}) as response:
        assert response.status == 200
    async with client.http.post(client.address("sendMessage"), data=form | {"reply_markup": "{"}) as response:
        assert (await response.json())["description"].startswith("Bad Request: can't parse reply_markup")


async def test_edit_without_changes_is_refused(client: Client, ada: int) -> None:
    sent = await client.get("sendMessage", chat_id=ada, text="*x*", parse_mode="MarkdownV2")
    same = {"chat_id": ada, "message_id": sent["message_id"], "text": "<b>x</b> ", "parse_mode": "HTML"}
    assert (await client.refused("editMessageText", **same)).startswith("Bad Request: message is not modified: ")
    edited = await client.get("editMessageText", chat_id=ada, message_id=sent["message_id"], text="x")
    assert "entities" not in edited
    assert edited["edit_date"] >= edited["date"]


async def test_messages_of_others_cannot_be_edited_or_deleted(client: Client) -> None:
    server = client.server
    ada = server.user("Ada")
    group = server.group("Family", ada)
    posted = await group.says(ada, "mine")
    target = {"chat_id": group.id, "message_id": posted.id}
    assert await client.refused("editMessageText", **target, text="x") == "Bad Request: message can't be edited"
    assert await client.refused("deleteMessage", **target) == "Bad Request: message can't be deleted"


async def test_message_to_a_person_who_blocked_the_bot_is_refused(client: Client) -> None:
    ada = client.server.user("Ada")
    chat = client.server.private(ada)
    await chat.removes_bot(ada)
    answer = await client.ask("sendMessage", chat_id=chat.id, text="x")
    assert (answer["error_code"], answer["description"]) == (403, "Forbidden: bot was blocked by the user")
    await chat.readmits_bot(ada)
    await client.get("sendMessage", chat_id=chat.id, text="x")
    changes = [one["my_chat_member"] for one in await client.get("getUpdates")]
    assert [one["new_chat_member"]["status"] for one in changes] == ["kicked", "member"]


async def test_topics_need_a_forum_and_rights(client: Client) -> None:
    server = client.server
    large, forum = server.group("Large", kind="supergroup", admin=True), server.forum("Forum", admin=False)
    topic = await forum.opens_topic(server.user("Ada"), "Plans")
    arguments = {"name": "x"}
    assert "not a forum" in await client.refused("createForumTopic", chat_id=large.id, **arguments)
    assert "not enough rights" in await client.refused("createForumTopic", chat_id=forum.id, **arguments)
    await forum.closes_topic(topic)
    there = {"chat_id": forum.id, "message_thread_id": topic.id}
    assert await client.refused("sendMessage", **there, text="x") == "Bad Request: TOPIC_CLOSED"


async def test_files_are_checked_against_their_type(client: Client, ada: int) -> None:
    async def send(method: str, field: str, data: bytes) -> Any:
        form = aiohttp.FormData({"chat_id": str(ada)})
        form.add_field(field, data, filename="a.png")
        async with client.http.post(client.address(method), data=form) as response:
            return await response.json()

    assert (await send("sendPhoto", "photo", b"no picture"))["description"] == "Bad Request: IMAGE_PROCESS_FAILED"
    assert (await send("sendPhoto", "document", picture()))["description"].startswith("Bad Request: unknown parameter")
    assert (await send("sendDocument", "document", b""))["description"] == "Bad Request: file must be non-empty"
    sent = (await send("sendDocument", "document", picture()))["result"]["document"]["file_id"]
    reason = await client.refused("sendPhoto", chat_id=ada, photo=sent)
    assert reason == "Bad Request: can't use file of type Document as Photo"


async def test_files_are_served_only_with_the_token_of_the_bot(client: Client, ada: int) -> None:
    form = aiohttp.FormData({"chat_id": str(ada)})
    form.add_field("document", b"words", filename="a.txt")
    async with client.http.post(client.address("sendDocument"), data=form) as response:
        sent = (await response.json())["result"]["document"]["file_id"]
    path = (await client.get("getFile", file_id=sent))["file_path"]
    base = client.server.base_file_url
    async with client.http.get(f"{base}{client.server.token}/{path}") as response:
        assert await response.read() == b"words"
    async with client.http.get(f"{base}1:wrong/{path}") as response:
        assert response.status == 401
    async with client.http.get(f"{base}{client.server.token}/documents/none") as response:
        assert response.status == 404
