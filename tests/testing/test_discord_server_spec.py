"""The loopback Discord server against Discord's own description: requests of the adapter and their answers."""

from pathlib import Path

from tests.platforms.discord.far_side import settings_for
from tests.platforms.discord.test_sender import opus
from tests.testing.discord_spec import find_mismatches, require_spec

from talaria.contracts.platform import Button, Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.messages import File
from talaria.platforms.discord.adapter import Discord
from talaria.testing.discord_server import DiscordServer
from talaria.testing.discord_server.methods import create_message
from talaria.testing.platform_suite import next_incoming

require_spec()
_METHODS = 17


async def test_requests_and_answers_match_the_api_description(tmp_path: Path) -> None:
    async with DiscordServer() as server:
        discord = Discord(settings_for(server), [("status", "How things are")])
        await _run_scenario(server, discord, tmp_path)
        await discord.close()
        assert len({(call.method, call.path) for call in server.calls}) >= _METHODS
        assert find_mismatches(server) == []


async def test_mismatches_are_found() -> None:
    async with DiscordServer() as server:
        discord = Discord(settings_for(server))
        room = server.private(server.user("Ann"))
        await discord.send(Address("discord", room.id), Content(text="hello"), "k")
        server.calls[-1].answer.pop("author")
        server.calls[-1].body["nonce"] = "x" * 26
        await discord.close()
        found = find_mismatches(server)
    assert len(found) == 2
    assert "author" in found[1]


async def _run_scenario(server: DiscordServer, discord: Discord, folder: Path) -> None:
    ann = server.user("Ann")
    room, channel, forum = server.private(ann), server.channel("general"), server.channel("ideas", "forum")
    await channel.opens_thread(ann, "Plans")
    address = Address("discord", room.id)
    async with discord.connect() as arrivals:
        asked = await room.says(ann, "hello")
        await next_incoming(arrivals)
        files = []
        for name, data in (("notes.txt", b"notes"), ("voice.ogg", opus(5, 9))):
            (folder / name).write_bytes(data)
            files.append(File(str(folder / name), name, "audio/ogg" if name.endswith("ogg") else "text/plain"))
        answer = Content(
            text="hi", reply_to=asked.id, files=tuple(files), buttons=(Button("Yes", "y"), Button("No", "n"))
        )
        ref = await discord.send(address, answer, "a")
        await discord.send(
            address, Content(text="which?", buttons=tuple(Button(str(n), str(n)) for n in range(9))), "b"
        )
        await discord.edit(ref, Content(text="hello", buttons=answer.buttons))
        await discord.show_typing(address)
        for emoji in ("👀", "👍"):
            await discord.react(MessageRef(address, asked.id), emoji)
        await room.presses(ann, room.answers[0], "Yes")
        await next_incoming(arrivals)
        await room.uses(ann, "status")
        incoming = await next_incoming(arrivals)
        await discord.send(incoming.address, Content(text="All is well."), "c")
        await room.sends(ann, "data.bin", b"data")
        (attachment,) = (await next_incoming(arrivals)).attachments
        await discord.fetch(attachment, folder)
        await channel.says(ann, "and here?", by_role=True)
        await next_incoming(arrivals)
    for one in (channel, forum, server.private(ann)):
        await discord.create_handoff_thread(one.id, "Trip to Rome")
    channel.channel.forbids.add("threads")
    await discord.create_handoff_thread(channel.id, "Trip to Rome")
    channel.channel.forbids.add("all threads")
    await discord.create_handoff_thread(channel.id, "Trip to Rome")
    await discord.create_handoff_thread("4242", "Trip to Rome")
    server.fail(create_message, 429, retry_after=0.01)
    await discord.send(address, Content(text="after a pause"), "d")
    server.gateway.expire()
    async with discord.connect():
        pass
