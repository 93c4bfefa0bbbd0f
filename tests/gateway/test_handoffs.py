"""A conversation goes on in a chat: with all of it, in a thread of its own, at the key that the next message builds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.app.program import Program
from tests.gateway.workers import worker, workplace

from talaria.contracts.platform import Abilities
from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.handoffs import HandoffState
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text, ToolCall, ToolResult
from talaria.sessions.homes import Home, write_home
from talaria.storage.sqlite.opening import open_sqlite
from talaria.testing.clock import NOON
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import ModelServer, Say, Silence
from talaria.testing.model_server.received import Received

T = TypeVar("T")
OWNED = 'owners = ["loopback:ann"]'
THREADS = Abilities(text_limit=4096, threads=True, typing=True, idempotent=True)
PLAIN = Abilities(text_limit=4096, idempotent=True)
TOLD = "they have moved this conversation"


def answer(received: Received) -> Say:
    return Say("We were at the second plank.") if TOLD in received.question else Say(f"re: {received.question}")


class Terminal:
    """The store, as whoever asks for a handoff has it open."""

    def __init__(self, program: Program) -> None:
        self._file = program.home / "profiles" / "default" / "talaria.db"

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.to_thread(self._write, work)

    async def state(self, session_id: SessionId) -> HandoffState:
        found = await self.write(lambda tx: tx.handoffs.get_handoff_state(session_id))
        assert found is not None
        return found

    async def until_over(self, session_id: SessionId) -> HandoffState:
        async with asyncio.timeout(30):
            while (found := await self.state(session_id))["state"] in ("pending", "running"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return found

    def _write(self, work: Callable[[Transaction], T]) -> T:
        database = open_sqlite(self._file)
        try:
            return database.write(work)
        finally:
            database.close()


def begun(tx: Transaction, title: str = "The boat") -> SessionId:
    """Return a conversation of a terminal, with a tool call in it."""
    session_id = tx.sessions.create(NewSession(source="cli", title=title)).id
    call = ToolCall("c1", "list_files", "{}")
    tx.messages.append(
        session_id,
        [
            Message(role="user", parts=(Text("Build a boat."),), at=NOON),
            Message(role="assistant", parts=(Text("I look first."), call), at=NOON),
            Message(role="tool", parts=(ToolResult("c1", "two planks"),), at=NOON),
            Message(role="assistant", parts=(Text("There are two planks."),), at=NOON),
        ],
    )
    return session_id


def asked(tx: Transaction, home: Address, title: str = "The boat") -> SessionId:
    write_home(tx, Home(home, "home"))
    session_id = begun(tx, title)
    assert tx.handoffs.request_handoff(session_id, "loopback")
    return session_id


@pytest.fixture(params=[THREADS, PLAIN], ids=["threads", "no-threads"])
async def network(request: pytest.FixtureRequest) -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(request.param) as network:
        yield network


@pytest.mark.parametrize(
    "home",
    [Address("loopback", "ann"), Address("loopback", "crew", "group", user_id="ann")],
    ids=["private", "group"],
)
async def test_it_goes_on_there_with_all_that_was_said(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, home: Address
) -> None:
    server.answering(answer)
    program = workplace(tmp_path, server, network, access=OWNED)
    async with worker(program):
        await network.until(lambda: network.receivers == 1, seconds=20)
        terminal = Terminal(program)
        session_id = await terminal.write(lambda tx: asked(tx, home))
        assert (await terminal.until_over(session_id))["state"] == "completed"
        (binding,) = await terminal.write(lambda tx: tx.bindings.of_session(session_id))
        place = binding.address
        assert bool(place.thread_id) == network.platform().abilities.threads
        await network.until(lambda: bool(network.shown(place.chat_id, place.thread_id)), seconds=20)
        network.say(place, "and now?", sender="ann")
        await network.until(lambda: "re: and now?" in network.shown(place.chat_id, place.thread_id), seconds=20)
    assert network.shown(place.chat_id, place.thread_id) == ["We were at the second plank.", "re: and now?"]
    roles = [message["role"] for message in server.received[-1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "user"]


async def test_a_hundred_requests_and_three_gateways_move_each_once(tmp_path: Path, server: ModelServer) -> None:
    server.answering(answer)
    async with LoopbackNetwork(THREADS) as network, AsyncExitStack() as stack:
        program = workplace(tmp_path, server, network, access=OWNED)
        for _ in range(3):
            await stack.enter_async_context(worker(program))
        await network.until(lambda: network.receivers == 3, seconds=30)
        terminal = Terminal(program)
        home = Address("loopback", "crew", "group", user_id="ann")
        sessions = await terminal.write(lambda tx: [asked(tx, home, f"boat {number}") for number in range(100)])
        for session_id in sessions:
            assert (await terminal.until_over(session_id))["state"] == "completed"
        places = [binding.address for one in sessions for binding in await terminal.write(of(one))]
        assert len({place.thread_id for place in places}) == 100
        await network.until(lambda: len(network.posts) >= 100, seconds=60)
        assert all(len(network.shown("crew", place.thread_id)) == 1 for place in places)


def of(session_id: SessionId) -> Callable[[Transaction], list[Binding]]:
    return lambda tx: tx.bindings.of_session(session_id)


async def test_where_no_home_is_set_it_fails_with_the_reason(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(PLAIN) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
        async with worker(program):
            await network.until(lambda: network.receivers == 1, seconds=20)
            terminal = Terminal(program)
            session_id = await terminal.write(begun)
            assert await terminal.write(lambda tx: tx.handoffs.request_handoff(session_id, "loopback"))
            over = await terminal.until_over(session_id)
            assert over["state"] == "failed"
            assert "/sethome" in (over["error"] or "")
            assert await terminal.write(of(session_id)) == []


async def test_killed_at_any_step_it_ends_in_one_place_with_one_reply(tmp_path: Path, server: ModelServer) -> None:
    """The network holds up the making of the thread, then the sign that something comes, then the model its answer."""
    server.answering(answer)
    async with LoopbackNetwork(THREADS) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
        terminal = Terminal(program)
        async with worker(program):
            await network.until(lambda: network.receivers == 1, seconds=20)
        session_id = await terminal.write(lambda tx: asked(tx, Address("loopback", "ann")))
        for deed in ("thread", "typing"):
            network.upset(Fault(deed, "delay", times=0, seconds=3600))
            async with worker(program) as process:
                await until_running(terminal, session_id)
                process.kill()
                await process.wait()
            network.upset()
        server.script(Silence(after=0))
        async with worker(program) as process:
            assert (await terminal.until_over(session_id))["state"] == "completed"
            async with asyncio.timeout(20):
                await server.arrived(1)
            process.kill()
            await process.wait()
        async with worker(program):
            (binding,) = await terminal.write(of(session_id))
            place = binding.address
            await network.until(lambda: bool(network.shown(place.chat_id, place.thread_id)), seconds=20)
            network.say(place, "and now?", sender="ann")
            await network.until(lambda: "re: and now?" in network.shown(place.chat_id, place.thread_id), seconds=20)
    assert network.shown(place.chat_id, place.thread_id) == ["We were at the second plank.", "re: and now?"]
    assert (await terminal.state(session_id))["state"] == "completed"


async def until_running(terminal: Terminal, session_id: SessionId) -> None:
    async with asyncio.timeout(20):
        while (await terminal.state(session_id))["state"] != "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_from_chat_to_chat_and_back_the_places_say_where_it_went(tmp_path: Path, server: ModelServer) -> None:
    server.answering(answer)
    async with LoopbackNetwork(PLAIN) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
        async with worker(program):
            network.say("ann", "Build a boat.", sender="ann")
            await network.until(lambda: "re: Build a boat." in network.shown("ann"), seconds=20)
            network.say("attic", "hello", sender="ann")
            await network.until(lambda: "re: hello" in network.shown("attic"), seconds=20)
            network.say("ann", "/move loopback:attic", sender="ann")
            await network.until(lambda: "We were at the second plank." in network.shown("attic"), seconds=20)
            await network.until(lambda: any("goes on on loopback" in text for text in network.shown("ann")), seconds=20)
            network.say("attic", "and now?", sender="ann")
            await network.until(lambda: "re: and now?" in network.shown("attic"), seconds=20)
            assert "Build a boat." in server.received[-1].body.decode()
            network.say("ann", "anybody?", sender="ann")
            await network.until(lambda: "re: anybody?" in network.shown("ann"), seconds=20)
            assert "Build a boat." not in server.received[-1].body.decode()


async def test_a_script_moves_a_conversation(tmp_path: Path, server: ModelServer) -> None:
    server.answering(answer)
    async with LoopbackNetwork(THREADS) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
        without = await asyncio.to_thread(program.run, "sessions", "move", "boat", "loopback")
        assert without.code == 1
        async with worker(program):
            await network.until(lambda: network.receivers == 1, seconds=20)
            terminal = Terminal(program)
            await terminal.write(begun)
            await terminal.write(lambda tx: write_home(tx, Home(Address("loopback", "ann"))))
            moved = await asyncio.to_thread(program.run, "sessions", "move", "boat", "loopback", "--json")
            assert moved.code == 0, moved.err
            place = msgspec.json.decode(moved.out)
            shown = partial(network.shown, "ann", place["thread_id"])
            await network.until(lambda: shown() == ["We were at the second plank."], seconds=20)


async def test_whoever_gives_up_wins_and_a_slow_one_delays_no_other(tmp_path: Path, server: ModelServer) -> None:
    server.answering(answer)
    async with LoopbackNetwork(THREADS) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
        terminal = Terminal(program)
        async with worker(program):
            await network.until(lambda: network.receivers == 1, seconds=20)
            network.upset(Fault("thread", "delay", times=0, chat_id="slow", seconds=6))
            given_up = await terminal.write(lambda tx: asked(tx, Address("loopback", "slow"), "given up"))
            await until_running(terminal, given_up)
            quick = await terminal.write(lambda tx: asked(tx, Address("loopback", "ann"), "quick"))
            assert (await terminal.until_over(quick))["state"] == "completed"
            assert (await terminal.state(given_up))["state"] == "running"
            assert await terminal.write(lambda tx: tx.handoffs.withdraw_handoff(given_up, "it took too long"))
            await network.until(lambda: sum(record.kind == "thread" for record in network.records) == 2, seconds=20)
            await network.until(lambda: len(network.posts) == 1, seconds=20)
        assert await terminal.state(given_up) == {
            "state": "failed",
            "platform": "loopback",
            "error": "it took too long",
        }
        assert await terminal.write(of(given_up)) == []
        assert len(network.posts) == 1
        network.upset()
        async with worker(program):
            await network.until(lambda: network.receivers == 1, seconds=20)
            assert await terminal.write(lambda tx: tx.handoffs.request_handoff(given_up, "loopback"))
            assert (await terminal.until_over(given_up))["state"] == "completed"
        (binding,) = await terminal.write(of(given_up))
        made = [record for record in network.records if record.kind == "thread"]
        assert binding.address.chat_id == made[-1].address.chat_id == "ann"
        assert len(made) == 3  # the one in the other chat stays there, empty
