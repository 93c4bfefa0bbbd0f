"""Turns are spread over workers; a message reaches the worker that owns its chat."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.system.gateway_workers import gateway_program, worker

from talaria.contracts.platform import PlatformCapabilities
from talaria.runtime.workers import WorkerStatus, read_workers
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

ONE_RECEIVER = PlatformCapabilities(text_limit=4096, buttons=True, exclusive=True)
CHATS = [f"chat-{number}" for number in range(12)]


@asynccontextmanager
async def two_workers(home: Path, server: ModelServer, network: LoopbackNetwork, more: str = "") -> AsyncIterator[Path]:
    """Run two workers, one of which receives all messages; yield the file of their store."""
    program: Program = gateway_program(home, server, network, more=more)
    file = home / "profiles" / "default" / "talaria.db"
    async with AsyncExitStack() as stack:
        for count in (1, 2):
            await stack.enter_async_context(worker(program))
            await until(partial(_have_started, file, count))
        await network.until(lambda: network.receivers == 1)
        yield file


def _have_started(file: Path, count: int) -> bool:
    return file.exists() and len(worker_statuses(file)) == count


def worker_statuses(file: Path) -> list[WorkerStatus]:
    """Return the stored status of each worker."""
    database = open_sqlite(file)
    try:
        return database.read(read_workers)
    finally:
        database.close()


def results(received: Received) -> list[str]:
    """Return the tool results so far."""
    return [message["content"] for message in received.json["messages"] if message["role"] == "tool"]


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    """A network that delivers messages to one connection only."""
    async with LoopbackNetwork(ONE_RECEIVER) as network:
        yield network


async def test_turns_are_spread_over_workers_and_stopped_on_each_of_them(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    server.answering(lambda received: Say("slow " * 400, pause=0.1))
    async with two_workers(tmp_path, server, network) as file:
        for chat in CHATS:
            network.say(chat, "think", sender=chat)
        await server.arrived(len(CHATS))
        await until(lambda: all(one.turns for one in worker_statuses(file)))
        for chat in CHATS:
            network.say(chat, "/stop", sender=chat)
        await network.until(lambda: all("Stopped." in network.shown(chat) for chat in CHATS))
        await until(lambda: not any(one.turns for one in worker_statuses(file)))


async def test_answer_reaches_the_worker_that_asked_the_question(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    def answer(received: Received) -> Say:
        if received.question != "ask me":
            return Say("what?")
        answers = results(received)
        return Say(f"So: {answers[-1]}") if answers else Say(calls=[Ask("clarify", {"question": "Tea or milk?"})])

    server.answering(answer)
    async with two_workers(tmp_path, server, network):
        for chat in CHATS:
            network.say(chat, "ask me", sender=chat)
        await network.until(lambda: all(network.shown(chat) for chat in CHATS))
        for chat in CHATS:
            network.say(chat, "Milk", sender=chat)
        await network.until(lambda: all("answered: Milk" in network.shown(chat)[-1] for chat in CHATS))


async def test_steering_text_joins_the_turn_on_any_worker(
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
