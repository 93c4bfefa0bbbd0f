"""A command is found, checked and run; whatever goes wrong with it is a sentence."""

from pathlib import Path

from tests.commands.desk import open_desk

from talaria.commands.command import Author
from talaria.core.addresses import Address
from talaria.core.events import TurnAnswered
from talaria.testing.model_server import ModelServer, Say


async def test_a_command_is_used_at_the_open_conversation(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        assert await desk.say("hi") == TurnAnswered("ok")
        assert await desk.use("/title Night train") == "This conversation is now called *Night train*."
        assert await desk.use("/tit") == "This conversation is called *Night train*."
        assert await desk.transcript() == [("user", "hi"), ("assistant", "ok")]


async def test_what_does_not_exist_or_fits_several_is_said(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        assert await desk.use("/titel") == "There is no command `/titel`. Did you mean `/title`?"
        assert "`/help` lists them" in await desk.use("/xyzzy")


async def test_a_command_that_moves_the_conversation_waits_for_the_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.script(Say("one two three four five", pause=5))
        await desk.seat.put()
        await server.arrived()
        assert "stop it first (`/stop`)" in await desk.use("/new")
        await desk.use("/stop")
        await desk.seat.chat.conversation.settled()


async def test_a_command_of_the_terminal_is_refused_in_a_chat(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, chat=Address("telegram", "1")) as desk:
        assert await desk.use("/handoff telegram") == "Use `/move` here."
        assert await desk.use("/sethome", author=Author("somebody", owner=False)) == (
            "`/sethome` is for the owner of this agent."
        )
