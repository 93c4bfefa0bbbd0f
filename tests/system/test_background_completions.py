"""Background processes report to their chat through a real gateway, also after it was killed and restarted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.app.named_pipes import open_gate
from tests.app.program import Program
from tests.app.warm_program import WarmProcess
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import gateway_program, worker

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
REPORT_NOTICE = "Your background work reports"


def answer(received: Received) -> Say:
    """Start the requested command, and repeat the lines of a report."""
    last = received.json["messages"][-1]
    if last["role"] == "tool":
        return Say(f"begun: {last['content']}")
    if REPORT_NOTICE in received.question:
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
    program = gateway_program(tmp_path, server, network, access=OWNED)
    yield program
    for process in await processes(program):
        assert not process.is_alive


def _store_file(program: Program) -> Path:
    return program.home / "profiles" / "default" / "talaria.db"


def _list_stored(program: Program) -> list[BackgroundProcess]:
    with closing(open_sqlite(_store_file(program))) as database:
        return database.read(list_processes)


async def processes(program: Program) -> list[BackgroundProcess]:
    return await asyncio.to_thread(_list_stored, program)


async def start_command(network: LoopbackNetwork, chat: str, command: str) -> None:
    """Start a command from a chat, and wait until the chat confirms it."""
    before = len(network.shown(chat))
    network.say(chat, f"run {command}", sender="ann")
    await network.until(
        lambda: any("begun: Started in the background" in text for text in network.shown(chat)[before:])
    )


def reports(network: LoopbackNetwork, chat: str, thread: str = "") -> list[str]:
    return [text for text in network.shown(chat, thread) if text.startswith("heard: ")]


async def kill_gateway(gateway: WarmProcess) -> None:
    gateway.kill()
    await gateway.wait()


async def test_process_end_starts_a_turn_in_its_thread_that_replies_to_the_request(
    network: LoopbackNetwork, program: Program
) -> None:
    thread = Address("loopback", "ann", "private", "t7")
    async with worker(program):
        request_id = network.say(thread, "run mkfifo gate; read _ <gate; echo said it", sender="ann")
        await network.until(lambda: bool(network.shown("ann", "t7")))
        (process,) = await processes(program)
        await open_gate(Path(process.folder, "gate"))
        await network.until(lambda: bool(reports(network, "ann", "t7")))
    assert reports(network, "ann", "t7") == ["heard: said it"]
    (post,) = [record for record in network.posts if "heard" in record.text]
    assert post.reply_to == request_id


async def test_process_that_ended_while_no_gateway_ran_is_reported_at_the_next_start(
    network: LoopbackNetwork, program: Program
) -> None:
    async with worker(program) as gateway:
        await start_command(network, "ann", "mkfifo gate; read _ <gate; echo said late")
        await kill_gateway(gateway)
    (process,) = await processes(program)
    assert is_running(process.pid)
    await open_gate(Path(process.folder, "gate"))
    await until(lambda: not is_running(process.pid))
    for _ in range(2):
        async with worker(program):
            await network.until(lambda: bool(reports(network, "ann")))
    assert reports(network, "ann") == ["heard: said late"]


async def test_killed_turn_of_a_completion_is_resumed_and_reported_once(
    network: LoopbackNetwork, program: Program, server: ModelServer
) -> None:
    may_answer = asyncio.Event()

    async def answer_slowly(received: Received) -> Say:
        if REPORT_NOTICE in received.question:
            await may_answer.wait()
        return answer(received)

    server.answering(answer_slowly)
    async with worker(program) as gateway:
        await start_command(network, "ann", "mkfifo gate; read _ <gate; echo said it")
        before = len(server.received)
        (process,) = await processes(program)
        await open_gate(Path(process.folder, "gate"))
        async with asyncio.timeout(LIMIT):
            await server.arrived(before + 1)
        await kill_gateway(gateway)
    may_answer.set()
    async with worker(program):
        await network.until(lambda: bool(reports(network, "ann")))
    assert reports(network, "ann") == ["heard: said it"]


async def test_two_processes_that_end_during_a_turn_are_reported_in_one_turn(
    network: LoopbackNetwork, program: Program, server: ModelServer
) -> None:
    may_answer = asyncio.Event()

    async def answer_slowly(received: Received) -> Say:
        if received.question == "wait":
            await may_answer.wait()
        return answer(received)

    async with worker(program):
        await start_command(network, "ann", "mkfifo one; read _ <one; echo said one")
        await start_command(network, "ann", "mkfifo two; read _ <two; echo said two")
        server.answering(answer_slowly)
        before = len(server.received)
        network.say("ann", "wait", sender="ann")
        await server.arrived(before + 1)
        for process, gate in zip(await processes(program), ("one", "two"), strict=True):
            await open_gate(Path(process.folder, gate))
        await until_none_is_alive(program)
        may_answer.set()
        await network.until(lambda: bool(reports(network, "ann")))
    assert sorted(reports(network, "ann")[0].removeprefix("heard: ").split(", ")) == ["said one", "said two"]
    assert len(reports(network, "ann")) == 1


async def test_moved_session_gets_the_report_at_its_new_address(network: LoopbackNetwork, program: Program) -> None:
    def move(tx: Transaction) -> None:
        (process,) = list_processes(tx)
        bind_session(tx, process.session_id, "agent:main:loopback:private:elsewhere", Address("loopback", "elsewhere"))

    async with worker(program):
        await start_command(network, "ann", "mkfifo gate; read _ <gate; echo said there")
        await asyncio.to_thread(_write_to_store, program, move)
        (process,) = await processes(program)
        await open_gate(Path(process.folder, "gate"))
        await network.until(lambda: bool(reports(network, "elsewhere")))
    assert reports(network, "elsewhere") == ["heard: said there"]
    assert reports(network, "ann") == []


async def test_each_process_is_reported_once_although_the_gateway_is_killed_three_times(
    network: LoopbackNetwork, program: Program
) -> None:
    chats = [f"chat{number}" for number in range(8)]
    async with worker(program) as gateway:
        for chat in chats:
            await start_command(network, chat, f"mkfifo {chat}; read _ <{chat}; echo said {chat}")
        await kill_gateway(gateway)
    started = await processes(program)
    assert len(started) == len(chats)
    for third in range(3):
        some = list(zip(started, chats, strict=True))[third::3]
        async with worker(program) as gateway:
            for process, chat in some:
                await open_gate(Path(process.folder, chat))
            await network.until(partial(_has_a_report, network, [chat for _, chat in some]))
            await kill_gateway(gateway)
    async with worker(program):
        await network.until(lambda: all(reports(network, chat) for chat in chats))
    assert {chat: reports(network, chat) for chat in chats} == {chat: [f"heard: said {chat}"] for chat in chats}


async def test_stop_leaves_background_processes_running_and_a_new_session_ends_them(
    network: LoopbackNetwork, program: Program
) -> None:
    async with worker(program) as gateway:
        await start_command(network, "ann", "sleep 600")
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
    assert reports(network, "ann") == []


async def until_none_is_alive(program: Program) -> None:
    async def have_ended() -> bool:
        return not any(process.is_alive for process in await processes(program))

    await until(have_ended)


def _has_a_report(network: LoopbackNetwork, chats: list[str]) -> bool:
    return any(reports(network, chat) for chat in chats)


def _write_to_store(program: Program, work: Callable[[Transaction], None]) -> None:
    with closing(open_sqlite(_store_file(program))) as database:
        database.write(work)


async def test_processes_of_a_killed_worker_are_reported_by_another_worker(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, store_location: StoreLocation
) -> None:
    url = store_location.address if store_location.engine == "postgres" else ""
    program = gateway_program(tmp_path, server, network, url, schema=store_location.schema, access=OWNED)
    chats = [f"chat{number}" for number in range(6)]
    async with worker(program) as first:
        await network.until(lambda: network.receivers > 0)
        for chat in chats:
            await start_command(network, chat, f"mkfifo {chat}; read _ <{chat}; echo said {chat}")
        async with worker(program):
            await network.until(lambda: network.receivers > 1)
            await kill_gateway(first)
            for chat in chats:
                await open_gate(tmp_path / "workspaces" / "default" / chat)
            await network.until(lambda: all(reports(network, chat) for chat in chats))
    assert {chat: reports(network, chat) for chat in chats} == {chat: [f"heard: said {chat}"] for chat in chats}
