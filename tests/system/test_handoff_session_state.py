"""State that a handoff preserves: title, model, folder, goal, background processes and plan mode."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import opened, ready, say_until
from tests.system.handoff_fixture import MOVED_NOTICE, OWNED, THREADS, hand_off_from_terminal
from tests.system.test_gateway_process import running

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.goals.goal import read_goal
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.screen import Screen
from talaria.testing.wait import until

ARRIVED = "Here I am."
SLEEP = "sleep 90"
DONE = '{"verdict": "done", "reason": "It floats."}'
NOT_YET = '{"verdict": "wait", "reason": "The glue dries.", "wait_seconds": 3600}'


def answer(received: Received) -> Say:
    """Work in the folder ``boat`` and in the background, judge a goal by its latest step, and greet."""
    body, last = received.body.decode(), received.json["messages"][-1]
    if "title of at most six words" in body:
        return Say("The boat")
    if "You judge whether an agent" in body:
        return Say(DONE if "step there" in body else NOT_YET)
    if MOVED_NOTICE in received.question:
        return Say(ARRIVED)
    if last["role"] == "tool":
        return Say(f"It says {last['content']}")
    if "go into it" in received.question:
        return Say(calls=[Ask("terminal", {"command": "mkdir boat && cd boat && pwd"})])
    if "where" in received.question:
        return Say(calls=[Ask("terminal", {"command": "pwd"})])
    if "background" in received.question:
        return Say(calls=[Ask("terminal", {"command": SLEEP, "background": True})])
    if "make a folder there" in received.question:
        return Say(calls=[Ask("terminal", {"command": "mkdir dock"})])
    if "end it" in received.question:
        found = re.search(r"process (\S+), pid", body)
        return Say(calls=[Ask("process", {"action": "kill", "id": found[1] if found else ""})])
    return Say("step there" if MOVED_NOTICE in body else "step here")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(THREADS) as network:
        yield network


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    server.answering(answer)
    abilities = msgspec.json.encode(THREADS).decode()
    return scripted_program(
        tmp_path,
        server,
        f"[access]\n{OWNED}\n[platforms.loopback.options]\n"
        f"address = \"{network.address}\"\nabilities = '{abilities}'\n",
    )


@asynccontextmanager
async def handed_off(
    program: Program, network: LoopbackNetwork, inputs: Sequence[tuple[str, str]]
) -> AsyncIterator["TargetThread"]:
    """Type each input in a terminal until its text is shown, hand the session off, and yield the thread."""
    async with running(program):
        network.say("ann", "/sethome", sender="ann")
        await network.until(lambda: any("my home chat on Loopback" in text for text in network.shown("ann")))
        async with opened(program) as screen:
            await ready(screen)
            for text, shown in inputs:
                await say_until(screen, text, partial(shows, screen, shown))
            await hand_off_from_terminal(screen, "loopback")
        await network.until(lambda: any(record.kind == "thread" for record in network.records))
        there = TargetThread(network)
        await there.wait_for(re.escape(ARRIVED))
        yield there


def shows(screen: Screen, pattern: str) -> bool:
    return re.search(pattern, screen.text) is not None


class TargetThread:
    """The thread that the handoff created."""

    def __init__(self, network: LoopbackNetwork) -> None:
        (made,) = (record for record in network.records if record.kind == "thread")
        self.name = made.text
        self._address = Address("loopback", made.address.chat_id, thread_id=made.address.thread_id, user_id="ann")
        self._network = network

    async def send(self, text: str, shown: str) -> None:
        """Send a message of Ann to the thread, and wait until a pattern is shown."""
        self._network.say(self._address, text, sender="ann")
        await self.wait_for(shown)

    async def wait_for(self, shown: str) -> None:
        address = self._address

        def texts() -> list[str]:
            return self._network.shown(address.chat_id, address.thread_id)

        try:
            await self._network.until(lambda: any(re.search(shown, text) for text in texts()))
        except TimeoutError:
            raise AssertionError(f"{shown!r} is in none of {texts()}") from None


async def test_handoff_preserves_the_title(program: Program, network: LoopbackNetwork) -> None:
    inputs = [("Begin.", "step here"), ("/title The ark", "title is now The ark")]
    async with handed_off(program, network, inputs) as there:
        assert there.name == "The ark"
        await there.send("/title", r"title is \*The ark\*")


async def test_handoff_preserves_the_model(program: Program, network: LoopbackNetwork, server: ModelServer) -> None:
    inputs = [("Begin.", "step here"), ("/model mine:test-model", "now uses mine:test-model")]
    async with handed_off(program, network, inputs) as there:
        await there.send("Go on.", "step there")
    assert [one.json["model"] for one in server.received if MOVED_NOTICE in one.body.decode()] == ["test-model"] * 2


async def test_handoff_preserves_the_working_folder(program: Program, network: LoopbackNetwork) -> None:
    inputs = [("Make a folder and go into it.", "It says")]
    async with handed_off(program, network, inputs) as there:
        await there.send("And where are you?", f"It says .*{program.home}/work/boat")


async def test_handoff_preserves_the_goal(program: Program, network: LoopbackNetwork) -> None:
    inputs = [("Begin.", "step here"), ("/goal Build a boat that floats", "The glue dries")]
    async with handed_off(program, network, inputs) as there:
        await there.wait_for("waiting for 1 h")  # the first turn there was judged too; a waiting goal can be resumed
        await there.send("/goal status", "Build a boat that floats")
        await there.send("/goal resume", "step there")
        assert await wait_for_verdict(program) == "done"


async def test_background_process_can_be_ended_after_the_handoff(program: Program, network: LoopbackNetwork) -> None:
    inputs = [("Sleep in the background.", "It says Started in the background")]
    async with handed_off(program, network, inputs) as there:
        assert SLEEP in (await asyncio.to_thread(program.run, "ps")).out
        await there.send("Now end it.", f"It says Background process .*{SLEEP}")

        async def is_ended() -> bool:
            return SLEEP not in (await asyncio.to_thread(program.run, "ps")).out

        await until(is_ended)


async def test_handoff_preserves_plan_mode(program: Program, network: LoopbackNetwork) -> None:
    inputs = [("Begin.", "step here"), ("/plan", "Plan mode is on")]
    async with handed_off(program, network, inputs) as there:
        await there.send("Please make a folder there.", "It says Not allowed: Plan mode is on")
        await there.send("Now make a folder there.", "Carry out the plan")
        assert not (program.home / "work" / "dock").exists()
        await there.send("/approve", "Allowed this time")
        await until((program.home / "work" / "dock").is_dir)
        await there.send("/plan status", "Plan mode is off")


async def wait_for_verdict(program: Program) -> str:
    """Wait until the goal of the session is no longer active, and return its status."""
    store = open_sqlite_store(program.home / "profiles" / "default" / "talaria.db")
    try:
        await until(lambda: store.read(lambda tx: goal_status(tx) != "active"))
        return await store.read(goal_status)
    finally:
        await store.close()


def goal_status(tx: Transaction) -> str:
    (session,) = tx.sessions.find(SessionFilter(matching="The boat"))
    state = read_goal(tx, session.id).state
    return state.status if state else ""
