"""A handoff in the middle of a turn: the reply continues in the new chat, once."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.app.program import Program
from tests.cli.chat.chat_screen import DANGEROUS, opened, ready, say
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import gateway_program, worker

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.screen import Screen
from talaria.testing.wait import LIMIT

T = TypeVar("T")
THREADS = PlatformCapabilities(text_limit=4096, threads=True, edits=True, typing=True, idempotent=True)
OWNED = 'owners = ["loopback:ann"]'
TALE = " ".join(f"word{number}" for number in range(60))
BOTH = pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
HERE = "This conversation continues here now, in the middle of a turn."


def answer(received: Received, hold: tuple[int, asyncio.Event] | None = None) -> Say:
    if "title of at most six words" in received.body.decode():
        return Say("The tale")
    if received.question == "Tell me.":
        return Say(TALE, pause=0.05, hold=hold)
    return Say(f"re: {received.question}")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(THREADS) as network:
        yield network


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """Return a SQLite file, or a PostgreSQL schema in tests that run on both engines."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return StoreLocation("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))
    postgres: StoreLocation = request.getfixturevalue("postgres_location")
    return postgres


@pytest.fixture
def rest() -> asyncio.Event:
    """Lets the model continue its answer after twenty words."""
    return asyncio.Event()


@pytest.fixture
def program(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, engine: StoreLocation, rest: asyncio.Event
) -> Program:
    server.answering(lambda received: answer(received, hold=(20, rest)))
    return prepare_program(tmp_path, server, network, engine)


def prepare_program(
    home: Path, server: ModelServer, network: LoopbackNetwork, engine: StoreLocation, *, more: str = ""
) -> Program:
    (home / "work").mkdir()
    store = f'[store]\nurl = "{engine.address}"\nschema = "{engine.schema}"\n' if engine.schema else ""
    program = gateway_program(home, server, network, access=OWNED, more=more + store)
    write_store(engine, lambda tx: write_home(tx, HomeChat(Address("loopback", "ann"))))
    return program


def write_store(engine: StoreLocation, work: Callable[[Transaction], T]) -> T:
    database = engine.open(SystemClock())
    try:
        return database.write(work)
    finally:
        database.close()


def bound_address(tx: Transaction) -> Address:
    """Return the address of the only bound session."""
    (address,) = [
        binding.address for one in tx.sessions.find(SessionFilter()) for binding in tx.bindings.of_session(one.id)
    ]
    return address


async def shown(network: LoopbackNetwork, engine: StoreLocation, *texts: str) -> None:
    there = write_store(engine, bound_address)
    try:
        await network.until(lambda: network.shown(there.chat_id, there.thread_id) == list(texts))
    except TimeoutError:
        assert network.shown(there.chat_id, there.thread_id) == list(texts)


def count_calls(server: ModelServer) -> int:
    return len([one for one in server.received if one.question == "Tell me." and "six words" not in one.body.decode()])


@asynccontextmanager
async def streaming_answer(program: Program) -> AsyncIterator[Screen]:
    """Open a terminal in which a long answer is being streamed."""
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "Tell me.")
        await screen.wait_for(re.compile("word3"))
        yield screen


@pytest.mark.one_engine
@BOTH
async def test_answer_continues_in_the_thread_and_is_posted_once(
    program: Program, network: LoopbackNetwork, server: ModelServer, engine: StoreLocation, rest: asyncio.Event
) -> None:
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with streaming_answer(program) as screen:
            await say(screen, "/handoff --now loopback")
            await screen.wait_for(re.compile("The rest of the answer appears there"))
            rest.set()
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
        await shown(network, engine, HERE, TALE)
        there = write_store(engine, bound_address)
        network.say(there, "And now?", sender="ann")
        await shown(network, engine, HERE, TALE, "re: And now?")
    assert count_calls(server) == 1
    assert any(record.kind == "edit" for record in network.records)


@pytest.mark.one_engine
@BOTH
@pytest.mark.parametrize("leaving", ["killed", "ctrl-c"])
async def test_gateway_runs_the_turn_again_when_the_terminal_is_gone(
    program: Program,
    network: LoopbackNetwork,
    server: ModelServer,
    engine: StoreLocation,
    rest: asyncio.Event,
    leaving: str,
) -> None:
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with streaming_answer(program) as screen:
            await say(screen, "/handoff --now loopback")
            await screen.wait_for(re.compile("The rest of the answer appears there"))
            if leaving == "killed":
                screen.process.kill(signal.SIGKILL)
            else:
                await screen.press("c-c")
            async with asyncio.timeout(LIMIT):
                await screen.process.wait()
        rest.set()
        await shown(network, engine, HERE, TALE)
    assert count_calls(server) == 2


async def test_immediate_handoff_without_a_running_turn_posts_only_a_notice(
    program: Program, network: LoopbackNetwork, server: ModelServer, engine: StoreLocation
) -> None:
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with opened(program) as screen:
            await ready(screen)
            await say(screen, "hello")
            await screen.wait_for(re.compile("re: hello"))
            await say(screen, "/handoff --now loopback")
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
        await shown(network, engine, "This conversation continues here now.")
        network.say(write_store(engine, bound_address), "And now?", sender="ann")
        await shown(network, engine, "This conversation continues here now.", "re: And now?")
    assert "hello" in server.received[-1].body.decode()


@pytest.mark.one_engine
@BOTH
@pytest.mark.parametrize("word", ["1", "/approve"])
async def test_approval_after_the_handoff_is_asked_and_answered_in_the_new_chat(
    program: Program, network: LoopbackNetwork, server: ModelServer, engine: StoreLocation, word: str
) -> None:
    may_continue = asyncio.Event()

    async def answer_later(received: Received) -> Say:
        if "six words" in received.body.decode():
            return Say("The tale")
        if not may_continue.is_set():
            await may_continue.wait()
            return Say(calls=[Ask("terminal", {"command": DANGEROUS})])
        return Say("Done it.")

    server.answering(answer_later)
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with opened(program) as screen:
            await ready(screen)
            await say(screen, "Do it.")
            await screen.wait_for(re.compile("thinking"))
            await say(screen, "/handoff --now loopback")
            await screen.wait_for(re.compile("The rest of the answer appears there"))
            may_continue.set()
            there = write_store(engine, bound_address)
            await network.until(
                lambda: any("Run this command?" in text for text in network.shown("ann", there.thread_id))
            )
            network.say(there, word, sender="ann")
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
        await network.until(lambda: "Done it." in network.shown("ann", there.thread_id))
    assert (program.home / "work" / "done").exists()


async def test_stop_in_the_thread_stops_the_turn_in_the_terminal(
    program: Program, network: LoopbackNetwork, engine: StoreLocation
) -> None:
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with streaming_answer(program) as screen:
            await say(screen, "/handoff --now loopback")
            await screen.wait_for(re.compile("The rest of the answer appears there"))
            there = write_store(engine, bound_address)
            network.say(there, "/stop", sender="ann")
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
        await shown(network, engine, HERE, "Stopped.")


async def test_running_answer_moves_from_chat_to_chat(
    program: Program, network: LoopbackNetwork, server: ModelServer, rest: asyncio.Event
) -> None:
    async with worker(program):
        network.say("ann", "Tell me.", sender="ann")
        await network.until(lambda: any("word3" in text for text in network.shown("ann")))
        network.say("attic", "hello", sender="ann")
        await network.until(lambda: "re: hello" in network.shown("attic"))
        network.say("ann", "/move --now loopback:attic", sender="ann")
        await network.until(lambda: any("has moved to Loopback" in text for text in network.shown("ann")))
        network.say("ann", "anybody?", sender="ann")
        await network.until(lambda: "re: anybody?" in network.shown("ann"))
        rest.set()
        (thread,) = {post.address.thread_id for post in network.posts if HERE in post.text}
        await network.until(lambda: network.shown("attic", thread) == [HERE, TALE])
    assert count_calls(server) == 1
    assert TALE not in network.shown("ann")


async def test_restarted_gateway_shows_the_rest_of_the_answer(
    program: Program, network: LoopbackNetwork, server: ModelServer, engine: StoreLocation, rest: asyncio.Event
) -> None:
    async with streaming_answer(program) as screen:
        async with worker(program) as process:
            await network.until(lambda: network.receivers == 1)
            await say(screen, "/handoff --now loopback")
            await screen.wait_for(re.compile("The rest of the answer appears there"))
            process.kill()
            await process.wait()
        async with worker(program):
            there = write_store(engine, bound_address)
            await network.until(lambda: any("word9" in text for text in network.shown("ann", there.thread_id)))
            rest.set()
            await shown(network, engine, HERE, TALE)
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
    assert count_calls(server) == 1


async def test_message_in_the_new_chat_interrupts_the_turn_and_is_answered_there(
    tmp_path: Path, network: LoopbackNetwork, server: ModelServer, engine: StoreLocation
) -> None:
    server.answering(lambda received: answer(received, hold=(20, asyncio.Event())))
    program = prepare_program(tmp_path, server, network, engine, more='busy = "interrupt"\n')
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with streaming_answer(program) as screen:
            await say(screen, "/handoff --now loopback")
            await screen.wait_for(re.compile("The rest of the answer appears there"))
            there = write_store(engine, bound_address)
            await network.until(lambda: any("word9" in text for text in network.shown("ann", there.thread_id)))
            network.say(there, "Enough.", sender="ann")
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
        await shown(network, engine, HERE, "Stopped.", "re: Enough.")


async def test_script_moves_the_session_away_from_a_terminal_which_then_exits(
    program: Program, network: LoopbackNetwork, server: ModelServer, engine: StoreLocation, rest: asyncio.Event
) -> None:
    async with worker(program):
        await network.until(lambda: network.receivers == 1)
        async with streaming_answer(program) as screen:
            (session,) = write_store(engine, lambda tx: tx.sessions.find(SessionFilter()))
            refused = await asyncio.to_thread(program.run, "sessions", "move", session.id, "loopback")
            assert (refused.code, "`--now` to move it too" in refused.err) == (1, True)
            moved = await asyncio.to_thread(program.run, "sessions", "move", session.id, "loopback", "--now")
            assert moved.code == 0
            rest.set()
            await screen.wait_for(re.compile("This conversation was moved elsewhere"))
            async with asyncio.timeout(LIMIT):
                assert await screen.process.wait() == 0
        await shown(network, engine, HERE, TALE)
    assert count_calls(server) == 1
