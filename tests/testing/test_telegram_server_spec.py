"""The server compared with Telegram's own description: parameters, objects and answers."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.testing.telegram_spec import find_mismatches, read_spec, require_spec

from talaria.testing.telegram_server import Document, Photo, Sticker, TelegramServer, Voice, parts, picture
from talaria.testing.telegram_server.methods import METHODS, Method

require_spec()

OBJECTS = [
    parts.MessageEntity,
    parts.LinkPreviewOptions,
    parts.ReplyParameters,
    parts.InlineKeyboardButton,
    parts.InlineKeyboardMarkup,
    parts.ReplyKeyboardMarkup,
    parts.ReplyKeyboardRemove,
    parts.ForceReply,
    parts.BotCommand,
]
# An empty URL removes the webhook, and an empty URL in a form counts as missing.
LENIENT = {("setWebhook", "url")}


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(topics=True) as server:
        yield server


def fields_of(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Return each field, and whether it must be given."""
    return {field.name: field.required for field in msgspec.structs.fields(kind) if field.name != "attached"}


def described(fields: list[dict[str, Any]]) -> dict[str, bool]:
    return {field["name"]: field["required"] for field in fields}


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_method_parameters_match_the_api_description(method: Method) -> None:
    theirs = described(read_spec()["methods"][method.name].get("fields", []))
    ours = fields_of(method.parameters)
    assert set(ours) == set(theirs)
    differ = {name for name in ours if ours[name] != theirs[name]}
    assert {(method.name, name) for name in differ} <= LENIENT


@pytest.mark.parametrize("kind", OBJECTS, ids=lambda kind: kind.__name__)
def test_object_fields_match_the_api_description(kind: type[msgspec.Struct]) -> None:
    assert fields_of(kind) == described(read_spec()["types"][kind.__name__]["fields"])


async def test_updates_of_all_kinds_match_the_api_description(server: TelegramServer) -> None:
    ada, bob = server.user("Ada"), server.user("Bob")
    async with aiohttp.ClientSession() as http:
        kinds = ["message", "edited_message", "channel_post", "edited_channel_post", "callback_query"]
        kinds += ["message_reaction", "my_chat_member"]
        await ask(http, server, "getUpdates", allowed_updates=kinds)
        groups = [server.group("Group", ada, bob), server.group("Large", ada, bob, kind="supergroup", admin=True)]
        forum, channel = server.forum("Forum", ada), server.group("News", ada, kind="channel")
        topic = await forum.opens_topic(ada, "Plans")
        for chat in (server.private(ada), *groups, forum, channel):
            posted = await chat.says(ada, "/start@talaria_bot see https://example.org and @talaria_bot #now")
            await chat.says(ada, "and more", reply_to=posted)
            for file in (Photo(), Document(b"x"), Voice(), Sticker()):
                await chat.sends(ada, file, caption="" if isinstance(file, Sticker) else "Look")
            await chat.sends_album(ada, [Photo(), Photo()])
            await chat.edits(posted, "changed")
            await chat.reacts(ada, posted, "👍")
            buttons = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
            await ask(http, server, "sendMessage", chat_id=chat.id, text="Sure?", reply_markup=buttons)
            await chat.presses(ada, chat.messages[-1], "Yes")
            await chat.removes_bot(ada)
            await chat.readmits_bot(ada)
        await forum.says(ada, "in the topic", thread=topic)
        large = server.world.upgrade(groups[0], ada)
        await ask(http, server, "sendMessage", chat_id=groups[0].id, text="Anybody?")
        assert server.calls[-1].answer["parameters"] == {"migrate_to_chat_id": large.id}
        await ask(http, server, "getUpdates")
    received_kinds = {next(key for key in update if key != "update_id") for update in server.calls[-1].answer["result"]}
    assert received_kinds == set(kinds)
    assert find_mismatches(server) == []


async def test_answers_of_all_methods_match_the_api_description(server: TelegramServer) -> None:
    ada = server.user("Ada")
    private, forum = server.private(ada), server.forum("Forum", ada)
    async with aiohttp.ClientSession() as http:
        for method, parameters in every_method(private.id, forum.id, ada.id):
            await ask(http, server, method, **parameters)
        posted = await private.says(ada, "hm")
        await ask(http, server, "setMessageReaction", chat_id=private.id, message_id=posted.id, reaction=[thumb()])
        await upload(http, server, private.id)
        press = await private.presses(ada, private.answers[0], "Yes")
        await ask(http, server, "answerCallbackQuery", callback_query_id=press.query_id)
    assert [call.answer for call in server.calls if not call.answer["ok"]] == []
    assert {call.method for call in server.calls} == {method.name for method in METHODS.values()}
    assert find_mismatches(server) == []


async def test_check_finds_mismatches(server: TelegramServer) -> None:
    async with aiohttp.ClientSession() as http:
        await ask(http, server, "getMe")
    server.calls[0].answer["result"]["is_bot"] = "yes"
    server.calls[0].answer["result"]["surprise"] = 1
    del server.calls[0].answer["result"]["id"]
    assert sorted(find_mismatches(server)) == [
        "getMe.is_bot: 'yes' is no Boolean",
        "getMe: User has no surprise",
        "getMe: User lacks id",
    ]


def thumb() -> dict[str, str]:
    return {"type": "emoji", "emoji": "👍"}


def every_method(private: int, forum: int, person: int) -> list[tuple[str, dict[str, Any]]]:
    """Return calls that succeed one after the other."""
    buttons = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    return [
        ("getMe", {}),
        ("setWebhook", {"url": "http://127.0.0.1:9/none", "secret_token": "s"}),
        ("getWebhookInfo", {}),
        ("deleteWebhook", {"drop_pending_updates": True}),
        ("getUpdates", {"timeout": 0, "allowed_updates": []}),
        ("setMyCommands", {"commands": [{"command": "new", "description": "Begin anew"}]}),
        ("getMyCommands", {}),
        ("deleteMyCommands", {"scope": {"type": "all_private_chats"}}),
        ("sendMessage", {"chat_id": private, "text": "<b>Hi</b>", "parse_mode": "HTML", "reply_markup": buttons}),
        ("editMessageText", {"chat_id": private, "message_id": 1, "text": "Ho", "reply_markup": buttons}),
        ("sendMessage", {"chat_id": private, "text": "so", "reply_parameters": {"message_id": 1}}),
        ("editMessageReplyMarkup", {"chat_id": private, "message_id": 2, "reply_markup": buttons}),
        ("deleteMessage", {"chat_id": private, "message_id": 2}),
        ("sendMessage", {"chat_id": private, "text": "more"}),
        ("deleteMessages", {"chat_id": private, "message_ids": [3, 99]}),
        ("sendChatAction", {"chat_id": private, "action": "typing"}),
        ("createForumTopic", {"chat_id": forum, "name": "Plans", "icon_color": 7322096}),
        ("editForumTopic", {"chat_id": forum, "message_thread_id": 1, "name": "Better plans"}),
        ("sendMessage", {"chat_id": forum, "message_thread_id": 1, "text": "there"}),
        ("closeForumTopic", {"chat_id": forum, "message_thread_id": 1}),
        ("reopenForumTopic", {"chat_id": forum, "message_thread_id": 1}),
        ("deleteForumTopic", {"chat_id": forum, "message_thread_id": 1}),
        ("getChat", {"chat_id": forum}),
        ("getChat", {"chat_id": private}),
        ("getChatMember", {"chat_id": forum, "user_id": person}),
        ("getChatMember", {"chat_id": forum, "user_id": 7000000001}),
        ("leaveChat", {"chat_id": forum}),
    ]


async def upload(http: aiohttp.ClientSession, server: TelegramServer, chat_id: int) -> None:
    """Send a file of each kind as a form with an edited caption, then fetch one and send an album."""
    for method, field, data, name in (
        ("sendPhoto", "photo", picture(), "a.png"),
        ("sendDocument", "document", b"words", "a.txt"),
        ("sendVoice", "voice", b"OggS", "a.ogg"),
        ("sendSticker", "sticker", b"RIFF", "a.webp"),
    ):
        form = aiohttp.FormData({"chat_id": str(chat_id)})
        form.add_field(field, data, filename=name)
        async with http.post(f"{server.base_url}{server.token}/{method}", data=form) as response:
            answer = (await response.json())["result"]
        if field != "sticker":
            await ask(
                http, server, "editMessageCaption", chat_id=chat_id, message_id=answer["message_id"], caption="Look"
            )
    photo = server.calls[-7].answer["result"]["photo"][-1]["file_id"]
    await ask(http, server, "getFile", file_id=photo)
    media = [{"type": "photo", "media": photo}, {"type": "photo", "media": photo, "caption": "two"}]
    await ask(http, server, "sendMediaGroup", chat_id=chat_id, media=media)


async def ask(http: aiohttp.ClientSession, server: TelegramServer, method: str, **parameters: object) -> None:
    async with http.post(f"{server.base_url}{server.token}/{method}", json=parameters) as response:
        await response.read()
