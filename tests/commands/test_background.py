"""Something is answered beside the conversation, and never in its way."""

import asyncio
import re
from pathlib import Path

from tests.commands.desk import open_desk

from talaria.commands.command import Author
from talaria.core.events import TurnAnswered
from talaria.core.ids import SessionId
from talaria.testing.model_server import Ask, ModelServer, Received, Say, refused


def _named(shown: str) -> SessionId:
    """Return the conversation that a sentence names."""
    found = re.search(r"`(?:/resume )?([0-9a-z]{16})`", shown)
    assert found is not None
    return SessionId(found[1])


async def test_the_answer_comes_beside_a_conversation_that_goes_on(tmp_path: Path) -> None:
    holding = asyncio.Event()

    async def answer(request: Received) -> Say:
        if request.question == "How tall is it?":
            await holding.wait()
            return Say("Very *tall*.")
        return Say("hello")

    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.answering(answer)
        beside = _named(await desk.use("/background How tall is it?"))
        assert await desk.say("hi") == TurnAnswered("hello")
        holding.set()
        shown = await desk.place.told("Beside this conversation")
        assert shown == (
            f"**Beside this conversation:** How tall is it?\n\nVery *tall*.\n\n`/resume {beside}` goes on with it."
        )
        assert await desk.transcript() == [("user", "hi"), ("assistant", "hello")]
        here = desk.seat.session_id
        made = await desk.house.store.read(lambda tx: tx.sessions.get(beside))
        assert made is not None
        assert (made.parent_id, made.parent_seq) == (here, 0)
        await desk.use(f"/resume {beside}")
        assert await desk.transcript() == [("user", "How tall is it?"), ("assistant", "Very *tall*.")]


async def test_it_goes_on_while_the_person_begins_another_conversation(tmp_path: Path) -> None:
    holding = asyncio.Event()

    async def answer(request: Received) -> Say:
        await holding.wait()
        return Say("42")

    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.answering(answer)
        await desk.use("/background What is six times seven?")
        await server.arrived()
        await desk.use("/new")
        holding.set()
        assert "42" in await desk.place.told("Beside this conversation")


async def test_what_was_cut_off_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    async with ModelServer() as server:
        server.script(Say("one two three four", pause=30))
        async with open_desk(tmp_path, server) as desk:
            beside = _named(await desk.use("/background Count"))
            await server.arrived()
        server.otherwise(Say("one to four"))
        async with open_desk(tmp_path, server) as desk:
            await desk.use(f"/resume {beside}")
            await desk.seat.chat.conversation.settled()
            assert await desk.transcript() == [("user", "Count"), ("assistant", "one to four")]


async def test_failures_are_shown(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        assert "/background <text>" in await desk.use("/background")
        server.otherwise(refused())
        beside = _named(await desk.use("/background Something forbidden"))
        assert f"`/resume {beside}`" in await desk.place.told("declined")


async def test_one_that_cannot_be_opened_is_said_in_words_for_whoever_asked(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("hi")
        await desk.use("/config model.provider nowhere")
        await desk.use("/background one")
        assert "nowhere" in await desk.place.told("failed")
        desk.shown.clear()
        await desk.use("/background two", author=Author("Somebody", owner=False))
        assert "nowhere" not in await desk.place.told("failed")


async def test_nobody_is_asked_for_permission(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.script(Say(calls=[Ask("terminal", {"command": "rm -rf /etc/nothing"})]), Say("I may not."))
        await desk.use("/background Clean up")
        assert "I may not." in await desk.place.told("Beside this conversation")
        assert "nobody was there to allow it" in server.received[-1].body.decode()
