"""Turns are spread over workers; a message reaches the worker that owns its chat."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.system.gateway_workers import worker, workplace

from talaria.contracts.platform import PlatformCapabilities
from talaria.runtime.workers import WorkerStatus, read_workers
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

ONE_HEARS = PlatformCapabilities(text_limit=4096, buttons=True, exclusive=True)
CHATS = [f"chat-{number}" for number in range(12)]


@asynccontextmanager
async def two_workers(home: Path, server: ModelServer, network: LoopbackNetwork, more: str = "") -> AsyncIterator[Path]:
    """Run two workers, of which one hears all that is said; gives the file of their store."""
    program: Program = workplace(home, server, network, more=more)
    file = home / "profiles" / "default" / "talaria.db"
    async with AsyncExitStack() as stack:
        for count in (1, 2):
            await stack.enter_async_context(worker(program))
            await until(partial(_are_there, file, count))
        await network.until(lambda: network.receivers == 1)
        yield file


def _are_there(file: Path, count: int) -> bool:
    return file.exists() and len(told(file)) == count


def told(file: Path) -> list[WorkerStatus]:
    """Return what the workers say of themselves."""
    database = open_sqlite(file)
    try:
        return database.read(read_workers)
    finally:
        database.close()


def results(received: Received) -> list[str]:
    """Return what tools have answered so far."""
    return [message["content"] for message in received.json["messages"] if message["role"] == "tool"]


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    """A network that lets one connection hear."""
    async with LoopbackNetwork(ONE_HEARS) as network:
        yield network


async def test_turns_are_spread_and_stopped_wherever_they_run(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say("slow " * 400, pause=0.1))
    async with two_workers(tmp_path, server, network) as file:
        for chat in CHATS:
            network.say(chat, "think", sender=chat)
        await server.arrived(len(CHATS))
        await until(lambda: all(one.turns for one in told(file)))
        for chat in CHATS:
            network.say(chat, "/stop", sender=chat)
        await network.until(lambda: all("Stopped." in network.shown(chat) for chat in CHATS))
        await until(lambda: not any(one.turns for one in told(file)))


async def test_buttons_and_answers_reach_the_worker_that_asks(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    def answer(received: Received) -> Say:
        if received.question != "ask me":
            return Say("what?")
        said = results(received)
        return Say(f"So: {said[-1]}") if said else Say(calls=[Ask("clarify", {"question": "Tea or milk?"})])

    server.answering(answer)
    async with two_workers(tmp_path, server, network):
        for chat in CHATS:
            network.say(chat, "ask me", sender=chat)
        await network.until(lambda: all(network.shown(chat) for chat in CHATS))
        for chat in CHATS:
            network.say(chat, "Milk", sender=chat)
        await network.until(lambda: all("answered: Milk" in network.shown(chat)[-1] for chat in CHATS))


async def test_what_is_said_to_steer_joins_the_turn_wherever_it_runs(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    def answer(received: Received) -> Say:
        if results(received):
            return Say("joined" if "hurry" in received.body.decode() else "alone")
        return Say("wait " * 15, pause=0.1, calls=[Ask("todo", {})])

    server.answering(answer)
    async with two_workers(tmp_path, server, network, more='busy = "steer"\n'):
        for chat in CHATS[:4]:
            network.say(chat, "begin", sender=chat)
        await server.arrived(4)
        for chat in CHATS[:4]:
            network.say(chat, "hurry", sender=chat)
        await network.until(lambda: all("joined" in network.shown(chat) for chat in CHATS[:4]))
