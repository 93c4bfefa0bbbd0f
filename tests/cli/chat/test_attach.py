"""`talaria attach`: watch a session of another process, answer in it, and take it over."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.app import warm_program
from tests.app.program import Program
from tests.app.warm_program import WarmProcess
from tests.cli.chat.chat_screen import DANGEROUS, opened, ready, say
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import gateway_program, worker

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.screen import Screen
from talaria.testing.wait import LIMIT

OWNED = 'owners = ["loopback:ann"]'
TALE = " ".join(f"word{number}" for number in range(80))
BOTH = pytest.mark.parametrize("program", ["sqlite", "postgres"], indirect=True)
WATCHED = re.compile("Watching")


def answer(received: Received) -> Say:
    return Say(TALE, pause=0.05) if received.question == "Tell me." else Say(f"re: {received.question}")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    server.answering(answer)
    server.answer_when(lambda received: received.is_title_request, Say("The tale"))
    (tmp_path / "work").mkdir()
    store = ""
    if getattr(request, "param", "sqlite") == "postgres":
        store_location: StoreLocation = request.getfixturevalue("postgres_location")
        store = f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'
    return gateway_program(tmp_path, server, network, access=OWNED, more=store)


@asynccontextmanager
async def running_turn(program: Program, network: LoopbackNetwork) -> AsyncIterator[WarmProcess]:
    """Run a gateway with a long answer in progress in its only chat."""
    async with worker(program) as process:
        network.say("ann", "hello", sender="ann")
        await network.until(lambda: "re: hello" in network.shown("ann"))
        network.say("ann", "Tell me.", sender="ann")
        await network.until(lambda: any("word2" in text for text in network.shown("ann")))
        yield process


def attached(program: Program) -> AbstractAsyncContextManager[Screen]:
    return opened(program, "attach", "tale", columns=100)


@pytest.mark.one_engine
@BOTH
async def test_attach_shows_the_running_turn_of_a_chat_to_its_end(program: Program, network: LoopbackNetwork) -> None:
    async with running_turn(program, network), attached(program) as screen:
        await screen.wait_for(WATCHED)
        await screen.wait_for(re.compile(r"It is on loopback, chat ann\. A turn is running"))
        await screen.wait_for(re.compile("re: hello"))
        await screen.wait_for(re.compile("│ ann: Tell me"))
        await screen.wait_for(re.compile(r"word0 word1 word2[\s\S]* word79"))
        await network.until(lambda: TALE in network.shown("ann"))
        await say(screen, "and you?")
        await screen.wait_for(re.compile("❯ and you[?]\n\n?re: and you[?]"))
        await network.until(lambda: network.shown("ann")[-1] == "re: and you?")
        assert network.shown("ann")[-2] == "From the terminal:\n> and you?"
        await screen.press("c-d")
        async with asyncio.timeout(LIMIT):
            assert await screen.process.wait() == 0


async def test_a_stop_from_the_terminal_ends_the_turn_in_the_chat(program: Program, network: LoopbackNetwork) -> None:
    async with running_turn(program, network), attached(program) as screen:
        await screen.wait_for(re.compile("word5"))
        await say(screen, "/stop")
        await screen.wait_for(re.compile("Stopped"))
        await network.until(lambda: network.shown("ann")[-1] == "Stopped.")


@BOTH
async def test_take_moves_the_session_to_the_terminal_and_continues_it(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    async with running_turn(program, network), attached(program) as screen:
        await screen.wait_for(re.compile("word5"))
        await say(screen, "/take")
        await screen.wait_for(re.compile("You took over the conversation"))
        await network.until(lambda: any("has moved to the terminal" in one for one in network.shown("ann")))
        await screen.wait_for(re.compile("word79"))
        await ready(screen)
        await say(screen, "what now?")
        await screen.wait_for(re.compile("re: what now[?]"))
        network.say("ann", "new here", sender="ann")
        await network.until(lambda: "re: new here" in network.shown("ann"))
    assert TALE not in network.shown("ann")
    assert "re: what now?" not in network.shown("ann")
    assert len([one for one in server.received if one.question == "Tell me." and "six" not in one.body.decode()]) == 1


@pytest.mark.one_engine
@BOTH
async def test_attach_continues_with_the_next_gateway_after_a_kill(program: Program, network: LoopbackNetwork) -> None:
    async with running_turn(program, network) as process, attached(program) as screen:
        await screen.wait_for(re.compile("word5"))
        process.kill()
        await process.wait()
        await screen.wait_for(re.compile("The process that ran this conversation is gone"))
        async with worker(program):
            await screen.wait_for(re.compile("Another process has taken over"))
            await screen.wait_for(re.compile("word79"))


async def test_take_from_a_killed_gateway_continues_in_the_terminal(program: Program, network: LoopbackNetwork) -> None:
    async with running_turn(program, network) as process, attached(program) as screen:
        await screen.wait_for(re.compile("word5"))
        await say(screen, "/take")
        await screen.wait_for(re.compile("You took over the conversation"))
        process.kill()
        await process.wait()
        await ready(screen)
        await screen.wait_for(re.compile("word79"))


async def test_a_question_of_the_turn_is_answered_from_the_terminal(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    answers = iter([Say(calls=[Ask("terminal", {"command": DANGEROUS})])])
    server.answering(
        lambda received: answer(received) if "six" in received.body.decode() else next(answers, Say("Done."))
    )
    async with worker(program):
        network.say("ann", "Do it.", sender="ann")
        await network.until(lambda: any("Run this command?" in text for text in network.shown("ann")))
        (session,) = json.loads((await asyncio.to_thread(program.run, "sessions", "list", "--json")).out)
        async with opened(program, "attach", session["id"]) as screen:
            await screen.wait_for("Type the letter and press Enter")
            await say(screen, "y")
            await screen.wait_for(re.compile("Done"))
        await network.until(lambda: network.shown("ann")[-1] == "Done.")


async def test_attach_with_json_prints_events_as_json_lines(program: Program, network: LoopbackNetwork) -> None:
    async with running_turn(program, network):
        process = await warm_program.start(
            "attach",
            "tale",
            "--json",
            env=program.environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(LIMIT):
            while not events or events[-1]["type"] != "answered":
                events.append(json.loads(await process.stdout.readline()))
        assert (events[0]["type"], events[0]["title"], events[0]["running"]) == ("attached", "The tale", True)
        assert events[1]["type"] == "began"
        assert "".join(one["text"] for one in events if one["type"] == "text") == TALE
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0


async def test_attach_with_plain_prints_lines_of_text(program: Program, network: LoopbackNetwork) -> None:
    async with running_turn(program, network), opened(program, "attach", "tale", "--plain") as screen:
        await screen.wait_for(WATCHED)
        await screen.wait_for("> ann: Tell me.")
        await screen.wait_for(re.compile("word79"))
        await say(screen, "and you?")
        await screen.wait_for(re.compile("^re: and you[?]", re.MULTILINE))
        await say(screen, "/model")
        await screen.wait_for(re.compile(r"/model[\s\S]*While you watch, you can use"))
        await say(screen, "/take")
        await screen.wait_for(re.compile("^>$", re.MULTILINE))
        await say(screen, "here?")
        await screen.wait_for(re.compile("^re: here[?]", re.MULTILINE))
    assert "re: here?" not in network.shown("ann")


async def test_message_to_a_session_without_a_process_is_refused(program: Program, network: LoopbackNetwork) -> None:
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "hello")
        await screen.wait_for(re.compile("re: hello"))
        await screen.press("c-d")
        async with asyncio.timeout(LIMIT):
            await screen.process.wait()
    (session,) = json.loads((await asyncio.to_thread(program.run, "sessions", "list", "--json")).out)
    async with opened(program, "attach", session["id"]) as screen:
        await screen.wait_for(re.compile("It is in the terminal. Nothing is running"))
        await say(screen, "anybody?")
        await screen.wait_for(re.compile("No process is running this conversation"))
        await say(screen, "/take")
        await ready(screen)
        await say(screen, "and now?")
        await screen.wait_for(re.compile("re: and now[?]"))
