"""What moves along with a conversation: its name, its model, its folder, its goal, its processes, plan mode."""

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
from tests.system.handoff_fixture import OWNED, THREADS, TOLD, leave_for
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
    if TOLD in received.question:
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
    return Say("step there" if TOLD in body else "step here")


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
async def moved(
    program: Program, network: LoopbackNetwork, packed: Sequence[tuple[str, str]]
) -> AsyncIterator["There"]:
    """Say things in a terminal, each until the screen shows something, hand over, and yield the thread."""
    async with running(program):
        network.say("ann", "/sethome", sender="ann")
        await network.until(lambda: any("my home chat on Loopback" in text for text in network.shown("ann")))
        async with opened(program) as screen:
            await ready(screen)
            for text, shown in packed:
                await say_until(screen, text, partial(shows, screen, shown))
            await leave_for(screen, "loopback")
        await network.until(lambda: any(record.kind == "thread" for record in network.records))
        there = There(network)
        await there.sees(re.escape(ARRIVED))
        yield there


def shows(screen: Screen, wanted: str) -> bool:
    return re.search(wanted, screen.text) is not None


class There:
    """The thread that was made."""

    def __init__(self, network: LoopbackNetwork) -> None:
        (made,) = (record for record in network.records if record.kind == "thread")
        self.name = made.text
        self._place = Address("loopback", made.address.chat_id, thread_id=made.address.thread_id, user_id="ann")
        self._network = network

    async def hears(self, text: str, shown: str) -> None:
        """Let Ann say something there, and wait until something is shown."""
        self._network.say(self._place, text, sender="ann")
        await self.sees(shown)

    async def sees(self, shown: str) -> None:
        place = self._place

        def texts() -> list[str]:
            return self._network.shown(place.chat_id, place.thread_id)

        try:
            await self._network.until(lambda: any(re.search(shown, text) for text in texts()))
        except TimeoutError:
            raise AssertionError(f"{shown!r} is in none of {texts()}") from None


async def test_the_name(program: Program, network: LoopbackNetwork) -> None:
    packed = [("Begin.", "step here"), ("/title The ark", "title is now The ark")]
    async with moved(program, network, packed) as there:
        assert there.name == "The ark"
        await there.hears("/title", r"title is \*The ark\*")


async def test_the_model(program: Program, network: LoopbackNetwork, server: ModelServer) -> None:
    packed = [("Begin.", "step here"), ("/model mine:test-model", "now uses mine:test-model")]
    async with moved(program, network, packed) as there:
        await there.hears("Go on.", "step there")
    assert [one.json["model"] for one in server.received if TOLD in one.body.decode()] == ["test-model"] * 2


async def test_the_folder(program: Program, network: LoopbackNetwork) -> None:
    packed = [("Make a folder and go into it.", "It says")]
    async with moved(program, network, packed) as there:
        await there.hears("And where are you?", f"It says .*{program.home}/work/boat")


async def test_the_goal(program: Program, network: LoopbackNetwork) -> None:
    packed = [("Begin.", "step here"), ("/goal Build a boat that floats", "The glue dries")]
    async with moved(program, network, packed) as there:
        await there.sees("waiting for 1 h")  # the turn of the arrival was judged too; a goal that waits can be resumed
        await there.hears("/goal status", "Build a boat that floats")
        await there.hears("/goal resume", "step there")
        assert await judged(program) == "done"


async def test_what_runs_in_the_background(program: Program, network: LoopbackNetwork) -> None:
    packed = [("Sleep in the background.", "It says Started in the background")]
    async with moved(program, network, packed) as there:
        assert SLEEP in (await asyncio.to_thread(program.run, "ps")).out
        await there.hears("Now end it.", f"It says Background process .*{SLEEP}")

        async def is_ended() -> bool:
            return SLEEP not in (await asyncio.to_thread(program.run, "ps")).out

        await until(is_ended)


async def test_plan_mode(program: Program, network: LoopbackNetwork) -> None:
    packed = [("Begin.", "step here"), ("/plan", "Plan mode is on")]
    async with moved(program, network, packed) as there:
        await there.hears("Please make a folder there.", "It says Not allowed: Plan mode is on")
        await there.hears("Now make a folder there.", "Carry out the plan")
        assert not (program.home / "work" / "dock").exists()
        await there.hears("/approve", "Allowed this time")
        await until((program.home / "work" / "dock").is_dir)
        await there.hears("/plan status", "Plan mode is off")


async def judged(program: Program) -> str:
    """Wait until nothing is open about the goal of the conversation, and return how it stands."""
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
