"""Messages, edits, button presses and files on Telegram, as the adapter reports them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.platform import Button, Content, Incoming
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.formatting import format_text
from talaria.platforms.telegram.incoming import as_markdown
from talaria.platforms.telegram.settings import GroupMode
from talaria.platforms.telegram.wire import TelegramEntity
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import Document, Photo, Sticker, TelegramServer, Voice
from talaria.testing.telegram_server import MessageEntity as Mark


@asynccontextmanager
async def receiving(server: TelegramServer, mode: GroupMode = "reply") -> AsyncIterator[AsyncIterator[Incoming]]:
    platform = Telegram(settings_for(server, group_mode=mode))
    try:
        async with platform.connect() as arrivals:
            yield arrivals
    finally:
        await platform.close()


async def test_each_kind_of_chat_has_its_address_type(server: TelegramServer) -> None:
    ann = server.user("Ann")
    group, supergroup = server.group("Small", ann), server.group("Large", ann, kind="supergroup")
    channel, forum = server.group("News", ann, kind="channel"), server.forum("Project", ann)
    topic = await forum.opens_topic(ann, "Plans")
    async with receiving(server) as arrivals:
        await server.private(ann).says(ann, "a")
        await group.says(ann, "b")
        await supergroup.says(ann, "c")
        await channel.says(None, "d")
        await forum.says(ann, "e")
        await forum.says(ann, "f", thread=topic)
        arrived = [await next_incoming(arrivals) for _ in range(6)]
    assert [one.address for one in arrived] == [
        Address("telegram", str(ann.id), "private"),
        Address("telegram", str(group.id), "group"),
        Address("telegram", str(supergroup.id), "group"),
        Address("telegram", str(channel.id), "channel"),
        Address("telegram", str(forum.id), "group"),
        Address("telegram", str(forum.id), "thread", str(topic.id)),
    ]
    assert [one.chat_name for one in arrived] == ["Ann", "Small", "Large", "News", "Project", "Project"]
    assert [one.sender.name for one in arrived] == ["Ann", "Ann", "Ann", "News", "Ann", "Ann"]
    assert arrived[5].reply_to == ""  # on the wire it answers the notice that opened the topic


async def test_a_topic_of_a_private_chat_stays_private(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    thread = await telegram.create_handoff_thread(str(ann.id), "Moved here")
    assert thread is not None
    async with receiving(server) as arrivals:
        await chat.says(ann, "on we go", thread=int(thread))
        incoming = await next_incoming(arrivals)
    assert incoming.address == Address("telegram", str(ann.id), "private", thread)


@pytest.mark.parametrize(
    ("mode", "addressed"),
    [
        ("mention", {"named", "CAPITALS", "/status", "/status us", "ends"}),
        ("reply", {"named", "CAPITALS", "/status", "/status us", "ends", "reply"}),
        ("free", {"named", "CAPITALS", "/status", "/status us", "ends", "reply", "aside", "other", "quoted", "/other"}),
    ],
)
async def test_group_mode_decides_which_group_messages_are_addressed(
    server: TelegramServer, telegram: Telegram, mode: GroupMode, addressed: set[str]
) -> None:
    ann = server.user("Ann")
    group = server.group("Family", ann)
    await telegram.send(Address("telegram", str(group.id), "group"), Content(text="Hello"), "k")
    ours = group.answers[0]
    name = f"@{server.bot.username}"
    posted = {
        "named": f"{name} hello",
        "CAPITALS": f"{name.upper()} hello",
        "ends": f"what do you say, {name}?",
        "/status": "/status",
        "/status us": f"/status{name}",
        "/other": "/status@other_bot",
        "other": f"{name}2 hello",
        "quoted": f"mail me at ann{name}.example",
        "aside": "just talking",
    }
    async with receiving(server, mode) as arrivals:
        labels = set()
        for label, text in posted.items():
            await group.says(ann, text)
            if (await next_incoming(arrivals)).addressed:
                labels.add(label)
        await group.says(ann, "reply", reply_to=ours)
        incoming = await next_incoming(arrivals)
    assert incoming.reply_to == str(ours.id)
    assert labels | ({"reply"} if incoming.addressed else set()) == addressed


@pytest.mark.parametrize(
    ("posted", "text"),
    [
        ("@talaria_bot what is 1 + 1?", "what is 1 + 1?"),
        ("@talaria_bot: hello", "hello"),
        ("@talaria_bot", "@talaria_bot"),
        ("/status@talaria_bot now", "/status now"),
        ("/status@Talaria_Bot", "/status"),
        ("/status now", "/status now"),
        ("ask @talaria_bot about it", "ask @talaria_bot about it"),
    ],
)
async def test_leading_mention_of_the_bot_is_removed(server: TelegramServer, posted: str, text: str) -> None:
    ann = server.user("Ann")
    group = server.group("Family", ann)
    async with receiving(server) as arrivals:
        await group.says(ann, posted)
        incoming = await next_incoming(arrivals)
    assert (incoming.text, incoming.addressed) == (text, True)


async def test_entities_are_reported_as_markdown(server: TelegramServer) -> None:
    ann = server.user("Ann")
    group = server.group("Family", ann)
    entities = [Mark(type="mention", offset=0, length=12), Mark(type="bold", offset=16, length=4)]
    entities.append(Mark(type="text_link", offset=21, length=4, url="https://a.example"))
    async with receiving(server) as arrivals:
        await group.says(ann, "@talaria_bot 😀 look here", entities=entities)
        assert (await next_incoming(arrivals)).text == "😀 **look** [here](https://a.example)"


async def test_edit_is_reported_as_the_same_message(server: TelegramServer) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    async with receiving(server) as arrivals:
        message = await chat.says(ann, "helo")
        first = await next_incoming(arrivals)
        await chat.edits(message, "hello")
        second = await next_incoming(arrivals)
    assert (second.text, second.edited, second.message_id) == ("hello", True, first.message_id)
    assert second.external_id != first.external_id


async def test_an_edit_without_changes_is_not_reported(server: TelegramServer) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    async with receiving(server) as arrivals:
        message = await chat.says(ann, "hello")
        await chat.edits(message, "hello")
        await chat.edits(message, "hello there")
        await chat.edits(message, "hello there")
        await chat.edits(message, "hello")
        received = [await next_incoming(arrivals) for _ in range(3)]
    assert [(one.text, one.edited) for one in received] == [("hello", False), ("hello there", True), ("hello", True)]


async def test_unconfirmed_edit_is_delivered_again(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    message = await chat.says(ann, "helo")
    await chat.edits(message, "hello")
    for _ in range(2):
        async with telegram.connect() as arrivals:
            while not (edit := await next_incoming(arrivals)).edited:
                pass
        assert edit.text == "hello"


async def test_pressed_button_is_reported_and_answered(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    group = server.group("Family", ann)
    group_address = Address("telegram", str(group.id), "group")
    await telegram.send(group_address, Content(text="May I?", buttons=(Button("Yes", "yes:1"),)), "k")
    async with receiving(server) as arrivals:
        await group.presses(ann, group.answers[0], "Yes")
        incoming = await next_incoming(arrivals)
    assert (incoming.button, incoming.sender.id, incoming.addressed) == ("yes:1", str(ann.id), True)
    assert incoming.address == group_address
    await server.called("answerCallbackQuery")


async def test_press_is_reported_even_if_its_answer_fails(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    await telegram.send(Address("telegram", str(ann.id)), Content(text="?", buttons=(Button("Yes", "y"),)), "k")
    server.fail("answerCallbackQuery", 400, description="query is too old")
    async with receiving(server) as arrivals:
        await chat.presses(ann, chat.answers[0], "Yes")
        assert (await next_incoming(arrivals)).button == "y"


async def test_files_are_received_with_their_kind_and_caption(
    server: TelegramServer, telegram: Telegram, tmp_path: Path
) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    async with receiving(server) as arrivals:
        await chat.sends(ann, Photo(), caption="our cat")
        await chat.sends(ann, Voice(b"OggS words"))
        await chat.sends(ann, Sticker("🎉"))
        await chat.sends(ann, Document(b"a,b", "figures.csv", "text/csv"))
        await chat.sends(ann, Document(b"\x89PNG\r\n", "plan.png", "image/png"))
        arrived = [await next_incoming(arrivals) for _ in range(5)]
        assert [(one.text, one.attachments[0].kind) for one in arrived] == [
            ("our cat", "picture"),
            ("", "voice"),
            ("🎉", "sticker"),
            ("", "document"),
            ("", "picture"),
        ]
        voice = await telegram.fetch(arrived[1].attachments[0], tmp_path)
        assert (voice.read_bytes(), voice.suffix) == (b"OggS words", ".ogg")


async def test_largest_size_of_a_photo_is_fetched(server: TelegramServer, telegram: Telegram, tmp_path: Path) -> None:
    ann = server.user("Ann")
    photo = Photo()
    async with receiving(server) as arrivals:
        await server.private(ann).sends(ann, photo)
        (attachment,) = (await next_incoming(arrivals)).attachments
        path = await telegram.fetch(attachment, tmp_path)
    assert path.read_bytes() == photo.upload().data


async def test_an_album_is_one_message(server: TelegramServer) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    await chat.says(ann, "before")
    await chat.sends_album(ann, [Photo(), Photo(), Photo()], caption="the trip")
    async with receiving(server) as arrivals:
        first, album = await next_incoming(arrivals), await next_incoming(arrivals)
        await chat.says(ann, "behind")
        last = await next_incoming(arrivals)
    assert (first.text, album.text, last.text) == ("before", "the trip", "behind")
    assert len(album.attachments) == 3


async def test_redelivered_album_has_the_same_external_id(server: TelegramServer) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    await chat.sends_album(ann, [Photo(), Photo()])
    async with receiving(server) as arrivals:
        first = await next_incoming(arrivals)
    await chat.says(ann, "behind")
    async with receiving(server) as arrivals:
        redelivered = await next_incoming(arrivals)
    assert redelivered.external_id == first.external_id


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from(
            ["word ", "😀 ", "**bold** ", "*soft* ", "~~gone~~ ", "`x = 1` ", "[site](https://a.example) "]
        ),
        min_size=1,
        max_size=12,
    ).map(lambda pieces: "a " + "".join(pieces) + "z")
)
def test_formatted_text_is_read_back_as_the_same_markdown(source: str) -> None:
    formatted = format_text(source)
    entities = [
        TelegramEntity(one.kind, one.offset, one.length, url=one.value if one.kind == "text_link" else "")
        for one in formatted.entities
    ]
    assert as_markdown(formatted.text, entities).replace("_soft_", "*soft*") == source


@pytest.mark.slow
@given(
    st.text(max_size=40),
    st.lists(
        st.tuples(
            st.sampled_from(["bold", "code", "pre", "text_link", "blockquote", "spoiler"]),
            st.integers(-3, 60),
            st.integers(-3, 60),
        ),
        max_size=5,
    ),
)
def test_invalid_entities_do_not_lose_text(text: str, entities: list[tuple[str, int, int]]) -> None:
    read = as_markdown(text, [TelegramEntity(kind, start, length, url="u") for kind, start, length in entities])
    assert len(read) >= len(text)


async def test_unreadable_update_does_not_block_others(server: TelegramServer) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    broken = await chat.says(ann, "broken")
    assert broken.update is not None
    broken.update.body.clear()
    await chat.says(ann, "whole")
    async with receiving(server) as arrivals:
        assert (await next_incoming(arrivals)).text == "whole"


async def test_a_file_that_is_too_large_for_bots_is_refused(
    server: TelegramServer, telegram: Telegram, tmp_path: Path
) -> None:
    ann = server.user("Ann")
    async with receiving(server) as arrivals:
        await server.private(ann).sends(ann, Document(b"x" * (20 * 1024 * 1024 + 1), "large.bin"))
        (attachment,) = (await next_incoming(arrivals)).attachments
    with pytest.raises(Rejected):
        await telegram.fetch(attachment, tmp_path)
