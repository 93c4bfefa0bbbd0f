"""What the bot posts, as people see it."""

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
    """Return an Ogg file with packets of these sizes behind the two that tell what it is."""
    packets = [b"OpusHead" + bytes(11), b"OpusTags" + bytes(8), *(bytes(size) for size in sizes)]
    lacing = b"".join(bytes([255] * (len(packet) // 255) + [len(packet) % 255]) for packet in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, 4, int(48_000 * seconds), 1, 0, 0, len(lacing))
    return head + lacing + b"".join(packets)


def private(server: DiscordServer) -> Address:
    return Address("discord", server.private(server.user("Ann")).id)


async def test_nobody_is_called_by_a_name_in_a_text(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    await discord.send(private(server), Content(text=f"@everyone <@{ann.id}>"), "k")
    (call,) = [one for one in server.calls if one.path.endswith("/messages")]
    assert call.body["allowed_mentions"] == {"parse": [], "replied_user": False}
    (post,) = server.private(ann).answers
    assert (post.text, post.mentions) == (f"@everyone <@{ann.id}>", [])


async def test_an_answer_to_what_is_gone_is_posted_all_the_same(server: DiscordServer, discord: Discord) -> None:
    for number in ("12345", "not a number"):
        await discord.send(private(server), Content(text="late", reply_to=number), number)
    assert [one.text for one in server.private(server.user("Ann")).answers] == ["late", "late"]


async def test_many_files_go_out_ten_at_a_time_and_once(
    server: DiscordServer, discord: Discord, tmp_path: Path
) -> None:
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


async def test_a_voice_note_stands_alone_and_tells_how_it_sounds(
    server: DiscordServer, discord: Discord, tmp_path: Path
) -> None:
    path = tmp_path / "reply.ogg"
    path.write_bytes(opus(10, 200, 10, 100))
    content = Content(text="Listen.", files=(File(str(path), "reply.ogg", "audio/ogg"),))
    await discord.send(private(server), content, "voice")
    words, voice = server.private(server.user("Ann")).answers
    assert (words.text, words.flags, words.files) == ("Listen.", 0, [])
    assert (voice.text, voice.flags, voice.files[0].seconds) == ("", VOICE_FLAG, 2.0)
    assert voice.files[0].waveform == "Df8NgA=="


async def test_where_voice_notes_are_forbidden_one_is_a_file(
    server: DiscordServer, discord: Discord, tmp_path: Path
) -> None:
    room = server.private(server.user("Ann"))
    room.place.forbids.add("voice")
    path = tmp_path / "reply.ogg"
    path.write_bytes(opus(10, 20))
    await discord.send(private(server), Content(files=(File(str(path), "reply.ogg", "audio/ogg"),)), "voice")
    (post,) = room.answers
    assert (post.flags, post.files[0].name, post.files[0].waveform) == (0, "reply.ogg", "")


@pytest.mark.parametrize("data", [b"", b"OggS", b"RIFF....WAVE", opus(), opus(5, seconds=0), b"OpusHead" * 30])
def test_what_is_no_voice_note_is_not_taken_for_one(data: bytes) -> None:
    assert read_voice(data) is None


async def test_other_sounds_are_files(server: DiscordServer, discord: Discord, tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    path.write_bytes(b"ID3 and so on")
    await discord.send(private(server), Content(files=(File(str(path), "song.mp3", "audio/mpeg"),)), "song")
    (post,) = server.private(server.user("Ann")).answers
    assert (post.flags, post.files[0].name) == (0, "song.mp3")


async def test_a_picture_on_the_web_is_named_and_one_of_ours_is_sent(server: DiscordServer, discord: Discord) -> None:
    away, here = Image("https://example.org/cat.png"), Image("data:image/png;base64,aGVsbG8=")
    await discord.send(private(server), Content(text="Two cats.", files=(away, here)), "cats")
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


async def test_a_message_of_another_author_is_not_edited(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    theirs = await server.private(ann).says(ann, "mine")
    with pytest.raises(Rejected, match="50005"):
        await discord.edit(MessageRef(private(server), theirs.id), Content(text="ours"))


@pytest.mark.parametrize("place", [Address("discord", "general"), Address("discord", "1", "thread", "a/../b")])
async def test_a_place_that_cannot_be_is_refused_without_asking(discord: Discord, place: Address) -> None:
    with pytest.raises(Rejected, match="no channel"):
        await discord.send(place, Content(text="hello"), "k")
    with pytest.raises(Rejected, match="no channel"):
        await discord.show_typing(place)


@pytest.mark.parametrize(("forbidden", "code"), [({"messages"}, "50013"), (set(), "50008")])
async def test_where_we_may_not_speak_is_refused(
    server: DiscordServer, discord: Discord, forbidden: set[str], code: str
) -> None:
    channel = server.channel("rules", "text" if forbidden else "forum")
    channel.place.forbids |= forbidden
    with pytest.raises(Rejected, match=code):
        await discord.send(Address("discord", channel.id, "group"), Content(text="hello"), "k")


@pytest.mark.parametrize(("scope", "everywhere"), [("user", False), ("global", True)])
async def test_a_pause_is_for_one_place_or_for_all(
    server: DiscordServer, discord: Discord, scope: str, everywhere: bool
) -> None:
    server.fail(create_message, 429, retry_after=2.5, scope=scope)
    with pytest.raises(SlowDown) as slow:
        await discord.send(private(server), Content(text="hello"), "k")
    assert (slow.value.retry_after, slow.value.everywhere) == (timedelta(seconds=2.5), everywhere)


async def test_the_pace_that_discord_names_is_kept_at_each_place(server: DiscordServer, discord: Discord) -> None:
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


async def test_many_at_once_are_sent_once_each(server: DiscordServer, discord: Discord) -> None:
    async def send(number: int) -> None:
        while True:
            try:
                await discord.send(private(server), Content(text=str(number)), f"k{number}")
                return
            except SlowDown as slow:  # on a busy machine the pauses add up: a caller waits, and sends again
                await asyncio.sleep(slow.retry_after.total_seconds())  # real time: the pause that the server asks for

    server.limit(create_message, 5, 0.3)
    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(send(number))
    assert sorted(int(one.text) for one in server.private(server.user("Ann")).answers) == list(range(12))


async def test_a_short_rate_limit_is_observed_silently(server: DiscordServer, discord: Discord) -> None:
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


async def test_a_mark_of_ours_is_asked_for_only_where_it_is_not_known(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    said = await server.private(ann).says(ann, "hello")
    said.marks["👀"] = [server.bot.id]  # from before a restart
    ref = MessageRef(private(server), said.id)
    for emoji in ("👍", "✅", ""):
        await discord.react(ref, emoji)
    assert not any(said.marks.values())
    assert [one.method for one in server.calls if one.path.endswith("{message_id}")] == ["GET"]


async def test_an_emoji_that_discord_does_not_know_becomes_a_neutral_one(
    server: DiscordServer, discord: Discord
) -> None:
    ann = server.user("Ann")
    said = await server.private(ann).says(ann, "hello")
    await discord.react(MessageRef(private(server), said.id), "ok")
    assert said.marks == {"👀": [server.bot.id]}
    server.fail(add_reaction, 403)
    server.fail(get_message, 404)


async def test_a_file_is_fetched_from_where_it_lies_now(
    server: DiscordServer, discord: Discord, tmp_path: Path
) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    async with discord.connect() as arrivals:
        post = await room.sends(ann, "notes.txt", b"some words", "text/plain")
        (attachment,) = (await anext(arrivals)).attachments
        path = await discord.fetch(attachment, tmp_path)
        passed = await server.channel("general").forwards(ann, post)
        (again,) = (await anext(arrivals)).attachments
        copy = await discord.fetch(again, tmp_path)
        passed.passed = None
        with pytest.raises(Rejected, match="no longer available on Discord"):
            await discord.fetch(again, tmp_path)
    assert (path.name, path.read_bytes(), copy.read_bytes()) == ("notes.txt", b"some words", b"some words")
