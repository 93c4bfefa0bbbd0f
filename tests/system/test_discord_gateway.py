"""The gateway on Discord: the process, the adapter, the library, and a Discord that is strict."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.discord_server import DiscordServer
from talaria.testing.model_server import Ask, ModelServer, Say


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(heartbeat=1) as discord:
        yield discord


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, discord: DiscordServer) -> Program:
    return scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["discord:{discord.user("Ann").id}"]\n'
        f'[platforms.discord.options]\napi_url = "{discord.api_url}"\n',
        f"DISCORD_BOT_TOKEN={discord.token}\n",
    )


async def _until_logged_in(discord: DiscordServer, times: int = 1) -> None:
    """Wait until the gateway has logged in this many times."""
    await discord.world.until(lambda: len(discord.gateway.logins) >= times)


async def test_message_and_command_are_answered_in_their_chat(
    program: Program, server: ModelServer, discord: DiscordServer
) -> None:
    ann = discord.user("Ann")
    room, channel = discord.private(ann), discord.channel("general")
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with running(program):
        await _until_logged_in(discord)
        await room.says(ann, "hello")
        await room.wait_for(lambda post: post.text == "re: hello")
        asked = await channel.uses(ann, "whoami")
        await channel.wait_for(lambda post: "owner" in post.text)
        await discord.world.until(lambda: not asked.standing)
        await channel.says(ann, "among us")
        await channel.says(ann, "and you?", mention=True)
        await channel.wait_for(lambda post: post.text == "re: and you?")
    assert {"goal", "status", "stop"} <= {command["name"] for command in discord.world.commands}
    assert not any("among us" in post.text for post in channel.answers)


async def test_approval_is_asked_with_a_button(program: Program, server: ModelServer, discord: DiscordServer) -> None:
    ann = discord.user("Ann")
    room = discord.private(ann)
    server.script(Say(calls=[Ask("terminal", {"command": "echo true | sh && touch done"})]), Say("It is done."))
    async with running(program):
        await _until_logged_in(discord)
        await room.says(ann, "clean up")
        question = await room.wait_for(lambda post: bool(post.labels))
        pressed = await room.presses(ann, question, question.labels[0])
        await room.wait_for(lambda post: post.text == "It is done.")
    assert pressed.answer == 6


async def test_a_message_repeated_after_a_reconnect_is_answered_once(
    program: Program, server: ModelServer, discord: DiscordServer
) -> None:
    ann = discord.user("Ann")
    room = discord.private(ann)
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with running(program) as process:
        await _until_logged_in(discord)
        message = await room.says(ann, "hello")
        await room.wait_for(lambda post: post.text == "re: hello")
        discord.gateway.drop()
        await _until_logged_in(discord, 2)
        await room.redelivers(message)
        process.kill()
        await process.wait()
    await room.says(ann, "are you back?")
    async with running(program):
        await room.wait_for(lambda post: post.text == "re: are you back?")
        await room.redelivers(message)
        await room.says(ann, "the last")
        await room.wait_for(lambda post: post.text == "re: the last")
    assert [post.text for post in room.answers] == ["re: hello", "re: are you back?", "re: the last"]
    assert discord.gateway.logins == ["identify", "resume", "resume"]


async def test_session_moves_into_a_thread_and_continues_there(
    program: Program, server: ModelServer, discord: DiscordServer
) -> None:
    ann = discord.user("Ann")
    room, channel = discord.private(ann), discord.channel("general")
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with running(program):
        await _until_logged_in(discord)
        await channel.says(ann, "good morning", mention=True)  # from now on the channel is known by its name
        await channel.wait_for(lambda post: post.text == "re: good morning")
        await room.says(ann, "the code word is heron")
        await room.wait_for(lambda post: post.text == "re: the code word is heron")
        await room.says(ann, "/move discord:general")
        await discord.world.until(lambda: any(channel.is_thread for channel in discord.world.channels.values()))
        thread = discord.room(next(channel.id for channel in discord.world.channels.values() if channel.is_thread))
        await thread.wait_for(lambda post: post.text.startswith("re: "))
        await thread.says(ann, "what was it?")
        await thread.wait_for(lambda post: post.text == "re: [Ann] what was it?")
    asked = next(one for one in server.received if one.question == "[Ann] what was it?")
    assert "heron" in str(asked.body)
    assert thread.channel.parent is channel.channel
