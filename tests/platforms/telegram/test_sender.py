"""Messages that the adapter posts on Telegram, and the errors that it raises."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.platform import Button, Content, Incoming, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.telegram.adapter import Telegram
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import Chat, TelegramServer, User, picture


@pytest.fixture
def ann(server: TelegramServer) -> User:
    return server.user("Ann")


@pytest.fixture
def chat(server: TelegramServer, ann: User) -> Chat:
    return server.private(ann)


@pytest.fixture
def address(ann: User) -> Address:
    return Address("telegram", str(ann.id))


async def test_edit_that_changes_nothing_is_not_sent(
    server: TelegramServer, telegram: Telegram, chat: Chat, address: Address
) -> None:
    ref = await telegram.send(address, Content(text="**Hello**"), "k")
    for text in ("**Hello**", "__Hello__", "Hello", "Hello\n"):
        await telegram.edit(ref, Content(text=text))
    await telegram.edit(ref, Content(text="Hello", buttons=(Button("Yes", "y"),)))
    await telegram.edit(ref, Content(text="Hello"))
    edits = [call for call in server.calls if call.method == "editMessageText"]
    assert [call.status for call in edits] == [200, 200, 200]


async def test_markdown_is_sent_with_entities(telegram: Telegram, chat: Chat, address: Address) -> None:
    source = "# Plan\n\n😀 **bold**, `code` and [site](https://a.example)\n\n```py\nx = 1\n```\n> said"
    await telegram.send(address, Content(text=source), "k")
    (message,) = chat.answers
    assert message.text == "Plan\n\n😀 bold, code and site\n\nx = 1\nsaid"
    assert [message.styled(kind) for kind in ("bold", "code", "text_link", "pre", "blockquote")] == [
        ["Plan", "bold"],
        ["code"],
        ["site"],
        ["x = 1"],
        ["said"],
    ]
    assert next(one.language for one in message.entities if one.type == "pre") == "py"


async def test_refused_entities_are_omitted(
    server: TelegramServer, telegram: Telegram, chat: Chat, address: Address
) -> None:
    server.fail("sendMessage", 400, description="Bad Request: can't parse entities: unsupported URL")
    await telegram.send(address, Content(text="a **bold** word"), "k")
    (message,) = chat.answers
    assert (message.text, message.entities) == ("a bold word", ())


async def test_reply_to_a_deleted_message_is_posted_anyway(telegram: Telegram, chat: Chat, address: Address) -> None:
    await telegram.send(address, Content(text="late", reply_to="99999"), "k")
    assert [one.text for one in chat.answers] == ["late"]


async def test_buttons_are_shown_in_rows_and_removed_by_an_edit(
    telegram: Telegram, chat: Chat, address: Address
) -> None:
    buttons = (Button("Yes", "y"), Button("No", "n"), Button("Only for the rest of this conversation", "session"))
    ref = await telegram.send(address, Content(text="May I?", buttons=buttons), "k")
    (message,) = chat.answers
    assert message.markup is not None
    assert [[one.text for one in row] for row in message.markup.inline_keyboard] == [["Yes", "No"], [buttons[2].label]]
    await telegram.edit(ref, Content(text="Yes, you may."))
    assert (chat.answers[0].text, chat.answers[0].buttons) == ("Yes, you may.", ())


@pytest.mark.parametrize("value", ["", "x" * 65, "é" * 33])
async def test_button_with_an_invalid_value_is_refused(
    telegram: Telegram, chat: Chat, address: Address, value: str
) -> None:
    with pytest.raises(Rejected):
        await telegram.send(address, Content(text="?", buttons=(Button("a", value),)), "k")
    assert chat.answers == []


async def test_pictures_voices_and_documents_are_sent_as_such(
    telegram: Telegram, chat: Chat, address: Address, tmp_path: Path
) -> None:
    (tmp_path / "cat.png").write_bytes(picture())
    (tmp_path / "note.ogg").write_bytes(b"OggS\x00\x02 words")
    (tmp_path / "plan.txt").write_text("plan")
    files = (
        Image(str(tmp_path / "cat.png")),
        File(str(tmp_path / "note.ogg"), "note.ogg", "audio/ogg"),
        File(str(tmp_path / "plan.txt"), "../plan\n.txt", "text/plain"),
    )
    ref = await telegram.send(address, Content(text="All **three**", files=files), "k")
    assert [one.media.kind if one.media else "text" for one in chat.answers] == ["text", "photo", "voice", "document"]
    assert ref.message_id == str(chat.answers[0].id)


async def test_file_with_short_text_is_one_editable_message(
    telegram: Telegram, chat: Chat, address: Address, tmp_path: Path
) -> None:
    path = tmp_path / "plan.txt"
    path.write_text("plan")
    ref = await telegram.send(address, Content(text="The **plan**", files=(File(str(path), "plan.txt"),)), "k")
    (message,) = chat.answers
    assert (message.text, message.styled("bold")) == ("The plan", ["plan"])
    assert message.media is not None
    await telegram.edit(ref, Content(text="The *new* plan"))
    assert chat.answers[0].text == "The new plan"


async def test_long_text_does_not_become_a_caption(
    telegram: Telegram, chat: Chat, address: Address, tmp_path: Path
) -> None:
    path = tmp_path / "plan.txt"
    path.write_text("plan")
    await telegram.send(address, Content(text="😀" * 600, files=(File(str(path), "plan.txt"),)), "k")
    assert [(len(one.text), one.media is None) for one in chat.answers] == [(600, True), (0, False)]


async def test_typing_is_seen_in_the_topic(server: TelegramServer, telegram: Telegram, ann: User) -> None:
    forum = server.forum("Project", ann)
    topic = await forum.opens_topic(ann, "Plans")
    await telegram.show_typing(Address("telegram", str(forum.id), "thread", str(topic.id)))
    assert forum.actions == [("typing", topic.id)]


async def test_message_to_a_person_who_blocked_the_bot_is_refused(
    telegram: Telegram, chat: Chat, address: Address, ann: User
) -> None:
    await chat.removes_bot(ann)
    with pytest.raises(Rejected, match="blocked"):
        await telegram.send(address, Content(text="hello?"), "k")


async def test_message_to_a_left_group_or_deleted_topic_is_refused(
    server: TelegramServer, telegram: Telegram, ann: User
) -> None:
    group, forum = server.group("Family", ann), server.forum("Project", ann)
    topic = await forum.opens_topic(ann, "Plans")
    await group.removes_bot(ann)
    await forum.closes_topic(topic, delete=True)
    for address in (
        Address("telegram", str(group.id), "group"),
        Address("telegram", str(forum.id), "thread", str(topic.id)),
    ):
        with pytest.raises(Rejected):
            await telegram.send(address, Content(text="hello?"), "k")


async def test_topic_is_created_only_in_forums_with_permission(
    server: TelegramServer, telegram: Telegram, ann: User
) -> None:
    group, forum = server.group("Family", ann), server.forum("Closed", ann, admin=False)
    assert await telegram.create_handoff_thread(str(group.id), "Trip") is None
    assert await telegram.create_handoff_thread(str(forum.id), "Trip") is None
    assert await telegram.create_handoff_thread(str(server.forum("Open", ann).id), "Trip") is not None


async def test_edit_without_changes_is_accepted_and_an_invalid_id_is_refused(
    telegram: Telegram, chat: Chat, address: Address
) -> None:
    ref = await telegram.send(address, Content(text="a **b**"), "k")
    await telegram.edit(ref, Content(text="a **b**"))
    assert chat.answers[0].history == []
    with pytest.raises(Rejected):
        await telegram.edit(MessageRef(address, "not a number"), Content(text="x"))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Rejected),
        (401, BadCredentials),
        (403, Rejected),
        (404, BadCredentials),
        (409, Unreachable),
        (413, Rejected),
        (500, Unreachable),
        (502, Unreachable),
    ],
)
async def test_each_status_raises_its_error(
    server: TelegramServer, telegram: Telegram, address: Address, status: int, error: type[PlatformError]
) -> None:
    server.fail("sendMessage", status)
    with pytest.raises(error) as raised:
        await telegram.send(address, Content(text="x"), "k")
    assert server.token not in str(raised.value)


async def test_flood_control_is_reported_with_its_retry_delay(
    server: TelegramServer, telegram: Telegram, chat: Chat, address: Address
) -> None:
    server.flood(after=1, retry_after=11)
    ref = await telegram.send(address, Content(text="first"), "k")
    with pytest.raises(SlowDown) as slow:
        await telegram.send(address, Content(text="second"), "k")
    assert slow.value.retry_after == timedelta(seconds=11)
    with pytest.raises(SlowDown):
        await telegram.edit(ref, Content(text="third"))
    assert [one.text for one in chat.answers] == ["first"]


async def test_command_menu_contains_only_valid_commands(server: TelegramServer, telegram: Telegram) -> None:
    async with telegram.connect():
        (menu,) = server.menus.values()
    assert [(one.command, one.description) for one in menu] == [("status", "How things are"), ("new", "Begin anew")]


async def test_a_failing_command_menu_blocks_no_message(
    server: TelegramServer, telegram: Telegram, chat: Chat, ann: User
) -> None:
    server.fail("setMyCommands", 500)
    async with telegram.connect() as arrivals:
        await chat.says(ann, "hello")
        assert (await next_incoming(arrivals)).text == "hello"


async def test_a_second_receiver_is_refused_as_a_conflict(server: TelegramServer, telegram: Telegram) -> None:
    other = Telegram(settings_for(server))
    async with telegram.connect() as first, other.connect() as second:
        with pytest.raises(ExceptionGroup) as ended:
            await receive_both(first, second)
    await other.close()
    assert "another program" in str(ended.value.exceptions[0])
    assert isinstance(ended.value.exceptions[0], Unreachable)


async def receive_both(first: AsyncIterator[Incoming], second: AsyncIterator[Incoming]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(next_incoming(first))
        group.create_task(next_incoming(second))


async def test_the_token_is_not_written_to_the_log(
    server: TelegramServer, telegram: Telegram, address: Address, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await telegram.send(address, Content(text="hello"), "k")
    server.fail("*", 401, 3)
    with pytest.raises(BadCredentials) as unknown:
        async with telegram.connect():
            pass
    assert chat.answers
    assert server.token not in caplog.text + str(unknown.value)


@pytest.mark.slow
async def test_many_messages_at_once_all_arrive(server: TelegramServer, chat: Chat, address: Address) -> None:
    telegram = Telegram(structs.replace(settings_for(server), patience=timedelta(seconds=60)))
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(telegram.send(address, Content(text=f"n{number}"), "k"))
    await telegram.close()
    assert {one.text for one in chat.answers} == {f"n{number}" for number in range(100)}
