"""The loopback Discord server with the client of discord.py, including caches and compression: a second opinion."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import discord
import pytest
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from talaria.testing.discord_server import DiscordServer
from talaria.testing.wait import LIMIT


class Parrot(discord.Client):
    """Repeats each message and reacts to it; other events are in ``events``."""

    def __init__(self) -> None:
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(intents=intents, chunk_guilds_at_startup=False)
        self.events: asyncio.Queue[str] = asyncio.Queue()

    async def on_ready(self) -> None:
        self.events.put_nowait("ready")

    async def on_resumed(self) -> None:
        self.events.put_nowait("resumed")

    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            await message.add_reaction("👀")
            kind = type(message.channel).__name__
            answer = await message.reply(f"{kind}: {message.clean_content}", view=_Yes())
            await answer.edit(content=f"{answer.content}!")

    async def on_raw_reaction_add(self, mark: discord.RawReactionActionEvent) -> None:
        if self.user is not None and mark.user_id != self.user.id:
            self.events.put_nowait(f"{mark.emoji} of {mark.user_id}")

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        await interaction.response.defer()
        self.events.put_nowait(f"{interaction.type.name} of {interaction.user.name}")


class _Yes(discord.ui.View):
    @discord.ui.button(label="Yes", custom_id="yes")
    async def yes(self, interaction: discord.Interaction, button: "discord.ui.Button[_Yes]") -> None:
        """Do nothing more."""


@asynccontextmanager
async def running(server: DiscordServer) -> AsyncIterator[Parrot]:
    parrot = Parrot()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(parrot.start(server.token))
        async with asyncio.timeout(LIMIT):
            assert await parrot.events.get() == "ready"
        yield parrot
        await parrot.close()
        await task


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DiscordServer]:
    async with DiscordServer(heartbeat=5) as there:
        # The library has no other way to set the URL of its network.
        monkeypatch.setattr(Route, "BASE", there.api_url)
        monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(there.gateway.url))
        yield there


async def test_library_replies_in_all_kinds_of_chats(server: DiscordServer) -> None:
    ann = server.user("Ann")
    channel = server.channel("general")
    thread = await channel.opens_thread(ann, "Plans")
    rooms = {"DMChannel": server.private(ann), "TextChannel": channel, "Thread": thread}
    async with running(server) as parrot:
        for kind, room in rooms.items():
            posted = await room.says(ann, f"hello <@{ann.id}>")
            answer = await room.wait_for(lambda post, kind=kind: post.text == f"{kind}: hello @Ann!")  # type: ignore[misc]
            assert (answer.reply_to, posted.reactions["👀"], answer.labels) == (posted, [server.bot.id], ("Yes",))
            await room.reacts(ann, answer, "👍")
            asked = await room.presses(ann, answer, "Yes")
            async with asyncio.timeout(LIMIT):
                assert await parrot.events.get() == f"👍 of {ann.id}"
                assert await parrot.events.get() == "component of ann"
            assert asked.answer == 6


async def test_library_resumes_its_session(server: DiscordServer) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    async with running(server) as parrot:
        server.gateway.drop()
        await room.says(ann, "are you there?")
        async with asyncio.timeout(LIMIT):
            assert await parrot.events.get() == "resumed"
        await room.wait_for(lambda post: post.text == "DMChannel: are you there?!")
    assert server.gateway.logins == ["identify", "resume"]
