"""Scenarios that every Telegram library must pass with the loopback server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

import pytest
from msgspec import Struct
from tests.testing.telegram_spec import find_mismatches

from talaria.testing.telegram_server import Document, Message, Photo, Sticker, TelegramServer, Voice, picture
from talaria.testing.wait import LIMIT


class ReceivedUpdate(Struct, frozen=True, kw_only=True):
    """An update as a library reported it."""

    kind: Literal["text", "edit", "button", "reaction", "file", "move", "other"]
    text: str = ""
    chat_id: int = 0
    message_id: int = 0
    thread: int | None = None
    reply_to: int | None = None
    query: str = ""
    file: str = ""


UpdateQueue = AbstractAsyncContextManager[asyncio.Queue[ReceivedUpdate]]


class Library(Protocol):
    """A bot, written with some library."""

    rejected: type[Exception]
    slow_down: type[Exception]
    unauthorized: type[Exception]
    conflict: type[Exception]
    moved: type[Exception]

    def polling(self) -> UpdateQueue: ...
    def webhook(self, secret: str) -> UpdateQueue: ...
    async def bot_username(self, token: str) -> str: ...
    async def poll_once(self) -> None: ...
    def retry_seconds(self, error: Any) -> float: ...
    def new_chat_id(self, error: Any) -> int: ...
    async def send(
        self,
        chat_id: int,
        text: str,
        *,
        reply_to: int | None = None,
        thread: int | None = None,
        buttons: Sequence[tuple[str, str]] = (),
        markup: str | None = None,
    ) -> int: ...
    async def edit(self, chat_id: int, message_id: int, text: str) -> None: ...
    async def delete(self, chat_id: int, message_id: int) -> None: ...
    async def answer(self, query: str, text: str) -> None: ...
    async def react(self, chat_id: int, message_id: int, emoji: str) -> None: ...
    async def send_file(self, kind: str, chat_id: int, file: bytes | str, name: str, caption: str) -> str: ...
    async def send_album(self, chat_id: int, pictures: Sequence[bytes]) -> list[int]: ...
    async def fetch(self, file: str) -> bytes: ...
    async def show_typing(self, chat_id: int, thread: int | None) -> None: ...
    async def open_topic(self, chat_id: int, name: str) -> int: ...
    async def rename_topic(self, chat_id: int, thread: int, name: str) -> None: ...
    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> list[tuple[str, str]]: ...
    async def chat_title(self, chat_id: int) -> str: ...
    async def status_of(self, chat_id: int, user_id: int) -> str: ...


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(topics=True) as server:
        yield server
        assert find_mismatches(server) == []


async def next_of(queue: asyncio.Queue[ReceivedUpdate], kind: str) -> ReceivedUpdate:
    async with asyncio.timeout(LIMIT):
        while (received := await queue.get()).kind != kind:
            pass
    return received


class Scenarios:
    """The scenarios; a class for each library gives the fixture ``library``."""

    async def test_bot_is_identified_by_its_token(self, server: TelegramServer, library: Library) -> None:
        assert await library.bot_username(server.token) == server.bot.username
        with pytest.raises(library.unauthorized):
            await library.bot_username("7000000001:AAwrong-token-0000000000000000000000000")

    async def test_messages_are_received_by_long_polling(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        chat = server.private(ada)
        async with library.polling() as updates:
            await server.called("getUpdates")
            posted = await chat.says(ada, "Hello, naïve 🤖")
            received = await next_of(updates, "text")
            assert (received.text, received.chat_id, received.message_id) == ("Hello, naïve 🤖", chat.id, posted.id)
            number = await library.send(chat.id, "Good day", reply_to=posted.id)
            seen = await chat.wait_for(lambda message: message.text == "Good day")
            assert (seen.id, seen.reply_to) == (number, posted)
            await chat.edits(posted, "Hello again")
            assert (await next_of(updates, "edit")).text == "Hello again"

    async def test_messages_are_received_by_webhook(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        chat = server.private(ada)
        async with library.webhook("a-secret_1") as updates:
            await chat.says(ada, "by post")
            assert (await next_of(updates, "text")).text == "by post"
            await chat.wait_until(lambda: any(one.status == 200 for one in server.deliveries))
            with pytest.raises(library.conflict):
                await library.poll_once()

    async def test_markup_is_parsed_and_messages_are_edited(self, server: TelegramServer, library: Library) -> None:
        chat = server.private(server.user("Ada"))
        number = await library.send(chat.id, "*bold* and `code`", markup="MarkdownV2")
        (message,) = chat.messages
        assert (message.text, message.styled("bold"), message.styled("code")) == ("bold and code", ["bold"], ["code"])
        await library.edit(chat.id, number, "changed")
        assert (message.text, [one.text for one in message.history]) == ("changed", ["bold and code"])
        with pytest.raises(library.rejected, match=r"(?i)message is not modified"):
            await library.edit(chat.id, number, "changed")
        with pytest.raises(library.rejected, match=r"(?i)can't find end of bold entity at byte offset 3"):
            await library.send(chat.id, "ü *x", markup="MarkdownV2")
        await library.delete(chat.id, number)
        assert chat.messages == []

    async def test_buttons_are_pressed_and_answered(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        chat = server.private(ada)
        async with library.polling() as updates:
            await library.send(chat.id, "Sure?", buttons=[("Yes", "y:1"), ("No", "n:1")])
            (message,) = chat.answers
            assert [button.text for button in message.buttons] == ["Yes", "No"]
            press = await chat.presses(ada, message, "No")
            received = await next_of(updates, "button")
            assert (received.text, received.message_id) == ("n:1", message.id)
            await library.answer(received.query, "As you like")
            assert await press.answered() == "As you like"
        with pytest.raises(library.rejected, match=r"(?i)button_data_invalid"):
            await library.send(chat.id, "Too long", buttons=[("Yes", "x" * 65)])

    async def test_messages_are_sent_and_received_in_forum_topics(
        self, server: TelegramServer, library: Library
    ) -> None:
        ada = server.user("Ada")
        forum = server.forum("Workshop", ada)
        async with library.polling() as updates:
            thread = await library.open_topic(forum.id, "Plans")
            await library.send(forum.id, "in the topic", thread=thread)
            await library.show_typing(forum.id, thread)
            assert forum.answers[-1].thread == thread
            assert forum.actions == [("typing", thread)]
            await forum.says(ada, "me too", thread=thread)
            received = await next_of(updates, "text")
            assert (received.text, received.thread) == ("me too", thread)
            await library.rename_topic(forum.id, thread, "Better plans")
            mine = await forum.opens_topic(ada, "Of Ada")
            await forum.closes_topic(mine, delete=True)
            with pytest.raises(library.rejected, match=r"(?i)message thread not found"):
                await library.send(forum.id, "too late", thread=mine.id)

    async def test_topic_is_created_in_a_private_chat(self, server: TelegramServer, library: Library) -> None:
        chat = server.private(server.user("Ada"))
        thread = await library.open_topic(chat.id, "Travel")
        await library.send(chat.id, "there", thread=thread)
        assert chat.answers[-1].thread == thread
        with pytest.raises(library.rejected, match=r"(?i)the chat is not a forum"):
            await library.open_topic(server.group("Family").id, "No")

    @pytest.mark.parametrize(
        ("kind", "data", "name"),
        [
            ("photo", picture(), "a.png"),
            ("document", b"some words\n", "ideas & plans.txt"),
            ("voice", b"OggS spoken", "v.ogg"),
            ("sticker", b"RIFF....WEBP", "s.webp"),
        ],
    )
    async def test_files_are_uploaded_and_downloaded(
        self, server: TelegramServer, library: Library, kind: str, data: bytes, name: str
    ) -> None:
        chat = server.private(server.user("Ada"))
        caption = "" if kind == "sticker" else "Look"
        file = await library.send_file(kind, chat.id, data, name, caption)
        (message,) = chat.answers
        assert message.media is not None
        assert (message.media.kind, message.media.data, message.text) == (kind, data, caption)
        if kind == "document":
            assert message.media.file.name == name
        assert await library.fetch(file) == data
        assert await library.send_file(kind, chat.id, file, name, caption) == file
        with pytest.raises(library.rejected, match=r"(?i)wrong file identifier"):
            await library.send_file(kind, chat.id, "AgNobody", name, caption)

    async def test_files_sent_by_people_are_downloaded(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        chat = server.private(ada)
        async with library.polling() as updates:
            for file in (Photo(picture(50, 40)), Document(b"x,y\n1,2\n", "t.csv"), Voice(), Sticker()):
                await chat.sends(ada, file, caption="" if isinstance(file, Sticker) else "see")
                received = await next_of(updates, "file")
                assert await library.fetch(received.file) == file.upload().data
            album = await chat.sends_album(ada, [Photo(), Photo()], caption="two")
            assert (await next_of(updates, "file")).text == "two"
            await next_of(updates, "file")
            assert len({one.album for one in album}) == 1

    async def test_album_of_pictures_is_sent(self, server: TelegramServer, library: Library) -> None:
        chat = server.private(server.user("Ada"))
        numbers = await library.send_album(chat.id, [picture(10, 10), picture(20, 20)])
        assert [message.id for message in chat.answers] == numbers
        assert [message.media.data for message in chat.answers if message.media] == [picture(10, 10), picture(20, 20)]

    async def test_reactions_are_set_and_received(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        chat = server.private(ada)
        async with library.polling() as updates:
            await server.called("getUpdates")
            posted = await chat.says(ada, "Thanks")
            await library.react(chat.id, posted.id, "👍")
            assert posted.reactions[server.bot.id] == ("👍",)
            with pytest.raises(library.rejected, match=r"(?i)reaction_invalid"):
                await library.react(chat.id, posted.id, "🧀")
            await library.send(chat.id, "You are welcome")
            await chat.reacts(ada, chat.answers[0], "🎉")
            received = await next_of(updates, "reaction")
            assert (received.text, received.message_id) == ("🎉", chat.answers[0].id)

    async def test_group_migration_is_reported_with_the_new_id(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        group = server.group("Family", ada)
        async with library.polling() as updates:
            await server.called("getUpdates")
            large = server.world.upgrade(group, ada)
            received = {(await next_of(updates, "move")).text for _ in range(2)}
            assert received == {f"to {large.id}", f"from {group.id}"}
        with pytest.raises(library.moved, match=r"(?i)supergroup|migrated") as refused:
            await library.send(group.id, "Anybody?")
        assert library.new_chat_id(refused.value) == large.id
        await library.send(large.id, "Here you are.")
        assert [message.text for message in large.answers] == ["Here you are."]

    async def test_flood_control_is_reported_with_its_retry_delay(
        self, server: TelegramServer, library: Library
    ) -> None:
        chat = server.private(server.user("Ada"))
        server.flood(after=2, retry_after=7)
        await library.send(chat.id, "one")
        await library.send(chat.id, "two")
        with pytest.raises(library.slow_down) as refused:
            await library.send(chat.id, "three")
        assert library.retry_seconds(refused.value) == 7
        assert [message.text for message in chat.messages] == ["one", "two"]

    async def test_message_with_a_lost_answer_is_posted_again(self, server: TelegramServer, library: Library) -> None:
        chat = server.private(server.user("Ada"))
        server.lose("sendMessage")
        with pytest.raises(Exception):  # noqa: B017, PT011 - each library has its own error for a lost connection
            await library.send(chat.id, "once")
        await library.send(chat.id, "once")
        assert [message.text for message in chat.messages] == ["once", "once"]

    async def test_commands_chats_and_members_are_read(self, server: TelegramServer, library: Library) -> None:
        ada, bob = server.user("Ada"), server.user("Bob")
        group = server.group("Family", ada, bob)
        assert await library.set_commands([("new", "Begin anew"), ("stop", "Stop")]) == [
            ("new", "Begin anew"),
            ("stop", "Stop"),
        ]
        assert await library.chat_title(group.id) == "Family"
        assert await library.status_of(group.id, ada.id) == "creator"
        assert await library.status_of(group.id, bob.id) == "member"
        assert await library.status_of(server.forum("Forum", ada).id, server.bot.id) == "administrator"
        assert await library.status_of(group.id, server.user("Eve").id) == "left"

    async def test_redelivered_update_is_received_three_times(self, server: TelegramServer, library: Library) -> None:
        ada = server.user("Ada")
        chat = server.private(ada)
        async with library.polling() as updates:
            posted: Message = await chat.says(ada, "again and again")
            server.redeliver(posted)
            received = [await next_of(updates, "text") for _ in range(3)]
        assert {one.message_id for one in received} == {posted.id}
