"""Messages of the bot, as people see them."""

import asyncio
import struct
from datetime import timedelta
from pathlib import Path

import pytest

from talaria.contracts.platform import Button, Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected, SlowDown
from talaria.core.messages import File, Image
from talaria.platforms.discord.adapter import Discord
from talaria.platforms.discord.sender import read_voice
from talaria.testing.discord_server import DiscordServer
from talaria.testing.discord_server.methods import (
    add_reaction,
    create_message,
    get_message,
    show_typing,
)

VOICE_FLAG = 1 << 13


def opus(*sizes: int, seconds: float = 2.0) -> bytes:
    """Return an Ogg file with packets of these sizes after its two header packets."""
    packets = [b"OpusHead" + bytes(11), b"OpusTags" + bytes(8), *(bytes(size) for size in sizes)]
    lacing = b"".join(bytes([255] * (len(packet) // 255) + [len(packet) % 255]) for packet in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, 4, int(48_000 * seconds), 1, 0, 0, len(lacing))
    return head + lacing + b"".join(packets)


def private(server: DiscordServer) -> Address:
    return Address("discord", server.private(server.user("Ann")).id)


async def test_mentions_in_text_notify_no_user(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    await discord.send(private(server), Content(text=f"@everyone <@{ann.id}>"), "k")
    (call,) = [one for one in server.calls if one.path.endswith("/messages")]
    assert call.body["allowed_mentions"] == {"parse": [], "replied_user": False}
    (post,) = server.private(ann).answers
    assert (post.text, post.mentions) == (f"@everyone <@{ann.id}>", [])


async def test_reply_to_a_deleted_message_is_posted_anyway(server: DiscordServer, discord: Discord) -> None:
    for number in ("12345", "not a number"):
        await discord.send(private(server), Content(text="late", reply_to=number), number)
    assert [one.text for one in server.private(server.user("Ann")).answers] == ["late", "late"]


async def test_files_are_sent_once_and_ten_per_message(server: DiscordServer, discord: Discord, tmp_path: Path) -> None:
    files = []
    for number in range(12):
        path = tmp_path / f"{number}.txt"
        path.write_text(str(number))
        files.append(File(str(path), path.name, "text/plain"))
    content = Content(text="All of them.", files=tuple(files), buttons=(Button("Fine", "ok"),))
    refs = [await discord.send(private(server), content, "same") for _ in range(2)]
    first, second = server.private(server.user("Ann")).answers
    assert {ref.message_id for ref in refs} == {first.id}
    assert ([len(first.files), len(second.files)], first.labels, second.labels) == ([10, 2], ("Fine",), ())
    assert [file.data for file in second.files] == [b"10", b"11"]


async def test_voice_note_is_a_separate_message_with_duration_and_waveform(
    server: DiscordServer, discord: Discord, tmp_path: Path
) -> None:
    path = tmp_path / "reply.ogg"
    path.write_bytes(opus(10, 200, 10, 100))
    content = Content(text="Listen.", files=(File(str(path), "reply.ogg", "audio/ogg"),))
    await discord.send(private(server), content, "voice")
    text, voice = server.private(server.user("Ann")).answers
    assert (text.text, text.flags, text.files) == ("Listen.", 0, [])
    assert (voice.text, voice.flags, voice.files[0].seconds) == ("", VOICE_FLAG, 2.0)
    assert voice.files[0].waveform == "Df8NgA=="


async def test_voice_note_is_sent_as_a_file_where_voice_is_forbidden(
    server: DiscordServer, discord: Discord, tmp_path: Path
) -> None:
    room = server.private(server.user("Ann"))
    room.channel.forbids.add("voice")
    path = tmp_path / "reply.ogg"
    path.write_bytes(opus(10, 20))
    await discord.send(private(server), Content(files=(File(str(path), "reply.ogg", "audio/ogg"),)), "voice")
    (post,) = room.answers
    assert (post.flags, post.files[0].name, post.files[0].waveform) == (0, "reply.ogg", "")


@pytest.mark.parametrize("data", [b"", b"OggS", b"RIFF....WAVE", opus(), opus(5, seconds=0), b"OpusHead" * 30])
def test_invalid_opus_data_is_not_read_as_a_voice_note(data: bytes) -> None:
    assert read_voice(data) is None


async def test_other_audio_is_sent_as_a_file(server: DiscordServer, discord: Discord, tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes(b"ID3 and so on")
    await discord.send(private(server), Content(files=(File(str(path), "song.mp3", "audio/mpeg"),)), "song")
    (post,) = server.private(server.user("Ann")).answers
    assert (post.flags, post.files[0].name) == (0, "song.mp3")


async def test_web_picture_is_linked_and_own_picture_is_uploaded(server: DiscordServer, discord: Discord) -> None:
    on_the_web, uploaded = Image("https://example.org/cat.png"), Image("data:image/png;base64,aGVsbG8=")
    await discord.send(private(server), Content(text="Two cats.", files=(on_the_web, uploaded)), "cats")
    (post,) = server.private(server.user("Ann")).answers
    assert post.text == "Two cats.\nhttps://example.org/cat.png"
    assert [(file.name, file.data) for file in post.files] == [("picture.png", b"hello")]


async def test_more_than_five_choices_are_a_menu(server: DiscordServer, discord: Discord) -> None:
    choices = tuple(Button(f"Model {number}", f"model:{number}") for number in range(8))
    ref = await discord.send(private(server), Content(text="Which?", buttons=choices), "which")
    (post,) = server.private(server.user("Ann")).answers
    assert post.labels == tuple(one.label for one in choices)
    await discord.edit(ref, Content(text="Model 3 it is."))
    assert (post.text, post.labels) == ("Model 3 it is.", ())


async def test_edit_of_a_message_of_another_author_is_refused(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    theirs = await server.private(ann).says(ann, "mine")
    with pytest.raises(Rejected, match="50005"):
        await discord.edit(MessageRef(private(server), theirs.id), Content(text="ours"))


@pytest.mark.parametrize("address", [Address("discord", "general"), Address("discord", "1", "thread", "a/../b")])
async def test_invalid_address_is_refused_without_a_request(discord: Discord, address: Address) -> None:
    with pytest.raises(Rejected, match="no channel"):
        await discord.send(address, Content(text="hello"), "k")
    with pytest.raises(Rejected, match="no channel"):
        await discord.show_typing(address)


@pytest.mark.parametrize(("forbidden", "code"), [({"messages"}, "50013"), (set(), "50008")])
async def test_sending_without_permission_is_refused(
    server: DiscordServer, discord: Discord, forbidden: set[str], code: str
) -> None:
    channel = server.channel("rules", "text" if forbidden else "forum")
    channel.channel.forbids |= forbidden
    with pytest.raises(Rejected, match=code):
        await discord.send(Address("discord", channel.id, "group"), Content(text="hello"), "k")


@pytest.mark.parametrize(("scope", "everywhere"), [("user", False), ("global", True)])
async def test_rate_limit_applies_to_one_chat_or_to_all(
    server: DiscordServer, discord: Discord, scope: str, everywhere: bool
) -> None:
    server.fail(create_message, 429, retry_after=2.5, scope=scope)
    with pytest.raises(SlowDown) as slow:
        await discord.send(private(server), Content(text="hello"), "k")
    assert (slow.value.retry_after, slow.value.everywhere) == (timedelta(seconds=2.5), everywhere)


async def test_rate_limit_of_discord_is_observed_per_chat(server: DiscordServer, discord: Discord) -> None:
    server.limit(create_message, 5, 30)
    other = Address("discord", server.channel("general").id, "group")
    for number in range(5):
        await discord.send(private(server), Content(text=str(number)), f"k{number}")
    with pytest.raises(SlowDown) as slow:
        await discord.send(private(server), Content(text="5"), "k5")
    await discord.send(other, Content(text="elsewhere"), "k6")
    assert timedelta(seconds=20) < slow.value.retry_after <= timedelta(seconds=30)
    assert not slow.value.everywhere
    assert not any(one.status == 429 for one in server.calls)


async def test_concurrent_messages_are_sent_once_each(server: DiscordServer, discord: Discord) -> None:
    async def send(number: int) -> None:
        while True:
            try:
                await discord.send(private(server), Content(text=str(number)), f"k{number}")
                return
            except SlowDown as slow:  # on a busy machine the pauses add up: a caller waits and retries
                await asyncio.sleep(slow.retry_after.total_seconds())  # real time: the pause that the server asks for

    server.limit(create_message, 5, 0.3)
    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(send(number))
    assert sorted(int(one.text) for one in server.private(server.user("Ann")).answers) == list(range(12))


async def test_short_rate_limit_is_waited_for_without_an_error(server: DiscordServer, discord: Discord) -> None:
    server.fail(create_message, 429, retry_after=0.05)
    await discord.send(private(server), Content(text="hello"), "k")
    assert [one.text for one in server.private(server.user("Ann")).answers] == ["hello"]


async def test_typing_is_shown_in_the_chat_of_the_turn(server: DiscordServer, discord: Discord) -> None:
    thread = await server.channel("general").opens_thread(server.user("Ann"), "Plans")
    await discord.show_typing(Address("discord", "60", "thread", thread.id))
    assert server.world.typing == [thread.id]
    server.fail(show_typing, 429, retry_after=3)
    with pytest.raises(SlowDown):
        await discord.show_typing(private(server))


async def test_own_reaction_is_fetched_only_if_it_is_unknown(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    posted = await server.private(ann).says(ann, "hello")
    posted.reactions["👀"] = [server.bot.id]  # from before a restart
    ref = MessageRef(private(server), posted.id)
    for emoji in ("👍", "✅", ""):
        await discord.react(ref, emoji)
    assert not any(posted.reactions.values())
    assert [one.method for one in server.calls if one.path.endswith("{message_id}")] == ["GET"]


async def test_unknown_emoji_is_replaced_by_a_neutral_one(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    posted = await server.private(ann).says(ann, "hello")
    await discord.react(MessageRef(private(server), posted.id), "ok")
    assert posted.reactions == {"👀": [server.bot.id]}
    server.fail(add_reaction, 403)
    server.fail(get_message, 404)


async def test_file_is_fetched_from_its_current_url(server: DiscordServer, discord: Discord, tmp_path: Path) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    async with discord.connect() as arrivals:
        post = await room.sends(ann, "notes.txt", b"some words", "text/plain")
        (attachment,) = (await anext(arrivals)).attachments
        path = await discord.fetch(attachment, tmp_path)
        passed = await server.channel("general").forwards(ann, post)
        (again,) = (await anext(arrivals)).attachments
        copy = await discord.fetch(again, tmp_path)
        passed.forwarded = None
        with pytest.raises(Rejected, match="no longer available on Discord"):
            await discord.fetch(again, tmp_path)
    assert (path.name, path.read_bytes(), copy.read_bytes()) == ("notes.txt", b"some words", b"some words")
