"""What runs in the background of a chat wakes it: through a whole gateway, killed and started again meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.app.named_pipes import open_gate
from tests.app.program import Program
from tests.app.warm_program import WarmProcess
from tests.storage.engines import Place
from tests.system.gateway_workers import worker, workplace

from talaria.contracts.background_processes import BackgroundProcess, list_processes
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.os_processes import is_running
from talaria.runtime.active_session import bind_session
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import LIMIT, until

OWNED = 'everyone = true\nowners = ["loopback:ann"]'
SOON = LIMIT
TOLD = "Your background work reports"


def answer(received: Received) -> Say:
    """Start what was asked for, and repeat what is reported."""
    last = received.json["messages"][-1]
    if last["role"] == "tool":
        return Say(f"begun: {last['content']}")
    if TOLD in received.question:
        lines = [line for line in received.question.splitlines() if line.startswith("said ")]
        return Say(f"heard: {', '.join(lines)}")
    if received.question.startswith("run "):
        command = received.question.removeprefix("run ")
        return Say(calls=[Ask("terminal", {"command": command, "background": True, "notify_on_complete": True})])
    return Say("ok")


@pytest.fixture
async def network(server: ModelServer) -> AsyncIterator[LoopbackNetwork]:
    server.answering(answer)
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, threads=True, idempotent=True)) as network:
        yield network


@pytest.fixture
async def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> AsyncIterator[Program]:
    program = workplace(tmp_path, server, network, access=OWNED)
    yield program
    for process in await processes(program):
        assert not process.is_alive


def _at(program: Program) -> Path:
    return program.home / "profiles" / "default" / "talaria.db"


def _listed(program: Program) -> list[BackgroundProcess]:
    with closing(open_sqlite(_at(program))) as database:
        return database.read(list_processes)


async def processes(program: Program) -> list[BackgroundProcess]:
    return await asyncio.to_thread(_listed, program)


async def begun(network: LoopbackNetwork, chat: str, command: str) -> None:
    """Have a command started in a chat, and wait until the chat says so."""
    before = len(network.shown(chat))
    network.say(chat, f"run {command}", sender="ann")
    await network.until(
        lambda: any("begun: Started in the background" in text for text in network.shown(chat)[before:])
    )


def heard(network: LoopbackNetwork, chat: str, thread: str = "") -> list[str]:
    return [text for text in network.shown(chat, thread) if text.startswith("heard: ")]


async def killed(gateway: WarmProcess) -> None:
    gateway.kill()
    await gateway.wait()


async def test_the_end_of_a_process_begins_a_turn_in_its_thread_that_answers_who_asked(
    network: LoopbackNetwork, program: Program
) -> None:
    place = Address("loopback", "ann", "private", "t7")
    async with worker(program):
        asked = network.say(place, "run mkfifo gate; read _ <gate; echo said it", sender="ann")
        await network.until(lambda: bool(network.shown("ann", "t7")))
        (process,) = await processes(program)
        await open_gate(Path(process.folder, "gate"))
        await network.until(lambda: bool(heard(network, "ann", "t7")))
    assert heard(network, "ann", "t7") == ["heard: said it"]
    (post,) = [record for record in network.posts if "heard" in record.text]
    assert post.reply_to == asked


async def test_what_ends_while_no_gateway_runs_is_reported_at_the_next_start(
    network: LoopbackNetwork, program: Program
) -> None:
    async with worker(program) as gateway:
        await begun(network, "ann", "mkfifo gate; read _ <gate; echo said late")
        await killed(gateway)
    (process,) = await processes(program)
    assert is_running(process.pid)
    await open_gate(Path(process.folder, "gate"))
    await until(lambda: not is_running(process.pid))
    for _ in range(2):
        async with worker(program):
            await network.until(lambda: bool(heard(network, "ann")))
    assert heard(network, "ann") == ["heard: said late"]


async def test_a_turn_that_was_woken_and_killed_is_resumed_and_reported_once(
    network: LoopbackNetwork, program: Program, server: ModelServer
) -> None:
    held = asyncio.Event()

    async def slowly(received: Received) -> Say:
        if TOLD in received.question:
            await held.wait()
        return answer(received)

    server.answering(slowly)
    async with worker(program) as gateway:
        await begun(network, "ann", "mkfifo gate; read _ <gate; echo said it")
        before = len(server.received)
        (process,) = await processes(program)
        await open_gate(Path(process.folder, "gate"))
        async with asyncio.timeout(LIMIT):
            await server.arrived(before + 1)
        await killed(gateway)
    held.set()
    async with worker(program):
        await network.until(lambda: bool(heard(network, "ann")))
    assert heard(network, "ann") == ["heard: said it"]


async def test_two_that_end_at_once_while_it_is_busy_are_one_turn(
    network: LoopbackNetwork, program: Program, server: ModelServer
) -> None:
    held = asyncio.Event()

    async def slowly(received: Received) -> Say:
        if received.question == "wait":
            await held.wait()
        return answer(received)

    async with worker(program):
        await begun(network, "ann", "mkfifo one; read _ <one; echo said one")
        await begun(network, "ann", "mkfifo two; read _ <two; echo said two")
        server.answering(slowly)
        before = len(server.received)
        network.say("ann", "wait", sender="ann")
        await server.arrived(before + 1)
        for process, gate in zip(await processes(program), ("one", "two"), strict=True):
            await open_gate(Path(process.folder, gate))
        await until_none_is_alive(program)
        held.set()
        await network.until(lambda: bool(heard(network, "ann")))
    assert sorted(heard(network, "ann")[0].removeprefix("heard: ").split(", ")) == ["said one", "said two"]
    assert len(heard(network, "ann")) == 1


async def test_a_moved_conversation_gets_the_report_at_its_new_address(
    network: LoopbackNetwork, program: Program
) -> None:
    def move(tx: Transaction) -> None:
        (process,) = list_processes(tx)
        bind_session(tx, process.session_id, "agent:main:loopback:private:elsewhere", Address("loopback", "elsewhere"))

    async with worker(program):
        await begun(network, "ann", "mkfifo gate; read _ <gate; echo said there")
        await asyncio.to_thread(_changed, program, move)
        (process,) = await processes(program)
        await open_gate(Path(process.folder, "gate"))
        await network.until(lambda: bool(heard(network, "elsewhere")))
    assert heard(network, "elsewhere") == ["heard: said there"]
    assert heard(network, "ann") == []


async def test_each_of_many_is_reported_once_though_the_gateway_is_killed_three_times(
    network: LoopbackNetwork, program: Program
) -> None:
    chats = [f"chat{number}" for number in range(8)]
    async with worker(program) as gateway:
        for chat in chats:
            await begun(network, chat, f"mkfifo {chat}; read _ <{chat}; echo said {chat}")
        await killed(gateway)
    started = await processes(program)
    assert len(started) == len(chats)
    for third in range(3):
        some = list(zip(started, chats, strict=True))[third::3]
        async with worker(program) as gateway:
            for process, chat in some:
                await open_gate(Path(process.folder, chat))
            await network.until(partial(_one_was_told, network, [chat for _, chat in some]))
            await killed(gateway)
    async with worker(program):
        await network.until(lambda: all(heard(network, chat) for chat in chats))
    assert {chat: heard(network, chat) for chat in chats} == {chat: [f"heard: said {chat}"] for chat in chats}


async def test_a_stop_leaves_what_runs_in_the_background_and_a_new_conversation_ends_it(
    network: LoopbackNetwork, program: Program
) -> None:
    async with worker(program) as gateway:
        await begun(network, "ann", "sleep 600")
        (process,) = await processes(program)
        network.say("ann", "/stop", sender="ann")
        await network.until(lambda: len(network.shown("ann")) > 1)
        assert is_running(process.pid)
        gateway.terminate()
        async with asyncio.timeout(LIMIT):
            await gateway.wait()
        assert is_running(process.pid)
    async with worker(program):
        network.say("ann", "/new", sender="ann")
        await until(lambda: not is_running(process.pid))
        await until_none_is_alive(program)
    assert heard(network, "ann") == []


async def until_none_is_alive(program: Program) -> None:
    async def are_over() -> bool:
        return not any(process.is_alive for process in await processes(program))

    await until(are_over)


def _one_was_told(network: LoopbackNetwork, chats: list[str]) -> bool:
    return any(heard(network, chat) for chat in chats)


def _changed(program: Program, work: Callable[[Transaction], None]) -> None:
    with closing(open_sqlite(_at(program))) as database:
        database.write(work)


async def test_a_worker_that_is_killed_leaves_its_processes_to_the_others(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, place: Place
) -> None:
    url = place.address if place.engine == "postgres" else ""
    program = workplace(tmp_path, server, network, url, schema=place.schema, access=OWNED)
    chats = [f"chat{number}" for number in range(6)]
    async with worker(program) as first:
        await network.until(lambda: network.receivers > 0)
        for chat in chats:
            await begun(network, chat, f"mkfifo {chat}; read _ <{chat}; echo said {chat}")
        async with worker(program):
            await network.until(lambda: network.receivers > 1)
            await killed(first)
            for chat in chats:
                await open_gate(tmp_path / "workspaces" / "default" / chat)
            await network.until(lambda: all(heard(network, chat) for chat in chats))
    assert {chat: heard(network, chat) for chat in chats} == {chat: [f"heard: said {chat}"] for chat in chats}
