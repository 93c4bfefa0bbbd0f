"""Commands are found, checked and run; every error is shown as a sentence."""

from pathlib import Path

import pytest
from tests.commands.command_fixture import open_chat_client

from talaria.commands.command import Author
from talaria.core.addresses import Address
from talaria.core.events import TurnAnswered
from talaria.testing.model_server import ModelServer, Say


async def test_command_runs_in_the_active_session_and_is_not_in_the_transcript(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        assert await client.say("hi") == TurnAnswered("ok")
        assert await client.use("/title Night train") == "This conversation's title is now *Night train*."
        assert await client.use("/tit") == "There is no command `/tit`. Did you mean `/title`?"
        assert await client.transcript() == [("user", "hi"), ("assistant", "ok")]


async def test_unknown_command_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        assert await client.use("/titel") == "There is no command `/titel`. Did you mean `/title`?"
        assert "`/help` lists them" in await client.use("/xyzzy")


async def test_command_that_leaves_the_session_is_refused_during_a_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say("one two three four five", pause=5))
        await client.active_session.put()
        await server.arrived()
        assert "Stop it with `/stop` first" in await client.use("/new")
        await client.use("/stop")
        await client.active_session.chat.conversation.wait_until_idle()


async def test_terminal_command_and_owner_command_are_refused_in_a_chat(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=Address("telegram", "1")) as client:
        assert await client.use("/handoff telegram") == "Use `/move` here."
        assert await client.use("/sethome", author=Author("somebody", owner=False)) == (
            "Only the owner of this agent can use `/sethome`."
        )


@pytest.mark.parametrize("typed", ["/foo", "/foot", "/und", "/comp"])
async def test_abbreviated_command_with_side_effects_is_not_run(
    tmp_path: Path, server: ModelServer, typed: str
) -> None:
    async with open_chat_client(tmp_path, server) as client:
        before = client.surface.display
        shown = await client.use(typed)
        assert shown.startswith("There is no command")
        assert "Did you mean" in shown
        assert client.surface.display == before


async def test_read_only_command_can_be_abbreviated_in_the_terminal(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        assert await client.use("/vers") == await client.use("/version")


async def test_start_greets_and_its_typos_do_not_suggest_restart(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, chat=Address("telegram", "1")) as client:
        assert (await client.use("/start")).startswith("Hi")
        for typed in ("/strat", "/restar", "/rstart"):
            assert "restart" not in (await client.use(typed)).replace(typed, "")
