"""Handoffs: full history, own thread, and the session key that the next message builds."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import (
    GREETING,
    PLAIN,
    THREADS,
    answer,
    open_handoff_fixture,
    request_home_handoff,
    start_session,
)

from talaria.contracts.platform import PlatformCapabilities
from talaria.core.addresses import Address
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received

CREW = Address("loopback", "crew", "group", user_id="ann")


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> StoreLocation:
    return StoreLocation("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))


@pytest.mark.parametrize("abilities", [THREADS, PLAIN], ids=["threads", "no-threads"])
@pytest.mark.parametrize("home", [Address("loopback", "ann"), CREW], ids=["private", "group"])
async def test_session_continues_in_the_target_chat_with_its_full_history(
    tmp_path: Path, server: ModelServer, engine: StoreLocation, abilities: PlatformCapabilities, home: Address
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine, abilities) as here, worker(here.program):
        await here.served()
        session_id = await here.terminal.ask(lambda tx: request_home_handoff(tx, home))
        assert (await here.terminal.until_over(session_id))["state"] == "completed"
        (binding,) = await here.terminal.bindings(session_id)
        assert bool(binding.address.thread_id) == abilities.threads
        await here.shown(binding.address, GREETING)
        here.network.say(binding.address, "and now?", sender="ann")
        is_shared = abilities.threads and home is CREW
        await here.shown(binding.address, GREETING, "re: [ann] and now?" if is_shared else "re: and now?")
    roles = [message["role"] for message in server.received[-1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "user"]


@pytest.mark.one_engine
@pytest.mark.parametrize("abilities", [THREADS, PLAIN], ids=["threads", "no-threads"])
async def test_message_during_the_first_turn_after_a_handoff_joins_the_session(
    tmp_path: Path, server: ModelServer, engine: StoreLocation, abilities: PlatformCapabilities
) -> None:
    message_received = asyncio.Event()

    async def answer_after_message(received: Received) -> Say:
        await message_received.wait()
        return answer(received)

    async with open_handoff_fixture(tmp_path, server, engine, abilities) as here, worker(here.program):
        await here.served()
        server.answering(answer_after_message)
        session_id = await here.terminal.ask(lambda tx: request_home_handoff(tx, CREW))
        async with asyncio.timeout(60):
            await server.arrived(1)
        (binding,) = await here.terminal.bindings(session_id)
        here.network.say(binding.address, "and now?", sender="ann")
        await here.network.until(lambda: here.network.unconfirmed == 0)
        message_received.set()
        reply = "re: [ann] and now?" if abilities.threads else "re: and now?"
        await here.network.until(lambda: reply in here.seen(binding.address))
        (still,) = await here.terminal.bindings(session_id)
        stored = await here.terminal.write(lambda tx: [one.message.text for one in tx.messages.load(session_id)])
    assert still == binding
    assert stored[-1] == reply
    assert "Build a boat." in server.received[-1].body.decode()


@pytest.mark.parametrize("of_each", ["true", "false"], ids=["of-each", "of-all"])
@pytest.mark.parametrize(("kind", "abilities"), [("thread", THREADS), ("group", PLAIN)], ids=["thread", "group"])
async def test_next_message_of_the_owner_finds_the_session_in_separate_and_shared_chats(
    tmp_path: Path,
    server: ModelServer,
    sqlite_engine: StoreLocation,
    kind: str,
    abilities: PlatformCapabilities,
    of_each: str,
) -> None:
    """A home chat is stored without the person who set it, so the owner's next message decides."""
    more = f"[platforms.loopback]\n{kind}_sessions_per_user = {of_each}\n"
    async with open_handoff_fixture(tmp_path, server, sqlite_engine, abilities, more) as here, worker(here.program):
        await here.served()
        session_id = await here.terminal.ask(lambda tx: request_home_handoff(tx, Address("loopback", "crew", "group")))
        assert (await here.terminal.until_over(session_id))["state"] == "completed"
        (binding,) = await here.terminal.bindings(session_id)
        await here.shown(binding.address, GREETING)
        here.network.say(structs.replace(binding.address, user_id="ann"), "and now?", sender="ann")
        await here.shown(binding.address, GREETING, "re: [ann] and now?" if of_each == "false" else "re: and now?")
    assert "Build a boat." in server.received[-1].body.decode()


async def test_three_gateways_hand_off_a_hundred_sessions_once_each(
    tmp_path: Path, server: ModelServer, sqlite_engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, sqlite_engine) as here, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(worker(here.program))
        await here.served(3)
        sessions = await here.terminal.ask(
            lambda tx: [request_home_handoff(tx, CREW, f"boat {number}") for number in range(100)]
        )
        for session_id in sessions:
            assert (await here.terminal.until_over(session_id))["state"] == "completed"
        addresses = [binding.address for one in sessions for binding in await here.terminal.bindings(one)]
        assert len({address.thread_id for address in addresses}) == len(here.threads) == 100
        await here.network.until(lambda: len(here.network.posts) >= 100)
        assert all(here.seen(address) == [GREETING] for address in addresses)


async def test_handoff_without_a_home_chat_fails_with_the_reason(
    tmp_path: Path, server: ModelServer, engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine, PLAIN) as here, worker(here.program):
        await here.served()
        session_id = await here.terminal.write(start_session)
        assert await here.terminal.ask(lambda tx: tx.handoffs.request_handoff(session_id, "loopback"))
        over = await here.terminal.until_over(session_id)
        assert over["state"] == "failed"
        assert "/sethome" in (over["error"] or "")
        assert await here.terminal.bindings(session_id) == []


async def test_session_moved_to_another_chat_leaves_a_notice_in_the_old_chat(
    tmp_path: Path, server: ModelServer, sqlite_engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, sqlite_engine, PLAIN) as here, worker(here.program):
        network = here.network
        network.say("ann", "Build a boat.", sender="ann")
        await network.until(lambda: "re: Build a boat." in network.shown("ann"))
        network.say("attic", "hello", sender="ann")
        await network.until(lambda: "re: hello" in network.shown("attic"))
        network.say("ann", "/move loopback:attic", sender="ann")
        await network.until(lambda: GREETING in network.shown("attic"))
        await network.until(lambda: any("has moved to Loopback" in text for text in network.shown("ann")))
        network.say("attic", "and now?", sender="ann")
        await network.until(lambda: "re: and now?" in network.shown("attic"))
        assert "Build a boat." in server.received[-1].body.decode()
        network.say("ann", "anybody?", sender="ann")
        await network.until(lambda: "re: anybody?" in network.shown("ann"))
        assert "Build a boat." not in server.received[-1].body.decode()


async def test_script_moves_a_session(tmp_path: Path, server: ModelServer, sqlite_engine: StoreLocation) -> None:
    async with open_handoff_fixture(tmp_path, server, sqlite_engine) as here:
        without = await asyncio.to_thread(here.program.run, "sessions", "move", "boat", "loopback")
        assert without.code == 1
        async with worker(here.program):
            await here.served()
            await here.terminal.write(start_session)
            await here.terminal.write(lambda tx: write_home(tx, HomeChat(Address("loopback", "ann"))))
            moved = await asyncio.to_thread(here.program.run, "sessions", "move", "boat", "loopback", "--json")
            assert moved.code == 0, moved.err
            address = msgspec.json.decode(moved.out)
            shown = partial(here.network.shown, "ann", address["thread_id"])
            await here.network.until(lambda: shown() == [GREETING])


async def test_a_withdrawn_handoff_wins_over_a_late_gateway(
    tmp_path: Path, server: ModelServer, engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here:
        network, terminal = here.network, here.terminal
        async with worker(here.program):
            await here.served()
            network.disrupt(Fault("thread", "delay", chat_id="slow", seconds=4))
            withdrawn = await terminal.ask(lambda tx: request_home_handoff(tx, Address("loopback", "slow"), "given up"))
            await terminal.until_running(withdrawn)
            assert await terminal.write(lambda tx: tx.handoffs.withdraw_handoff(withdrawn, "it took too long"))
            await network.until(lambda: here.threads == ["slow"])
        assert await terminal.state(withdrawn) == {
            "state": "failed",
            "platform": "loopback",
            "error": "it took too long",
        }
        assert await terminal.bindings(withdrawn) == []
        assert network.posts == []
        await terminal.write(lambda tx: write_home(tx, HomeChat(Address("loopback", "ann"))))
        async with worker(here.program):
            await here.served()
            assert await terminal.ask(lambda tx: tx.handoffs.request_handoff(withdrawn, "loopback"))
            assert (await terminal.until_over(withdrawn))["state"] == "completed"
            assert not await terminal.write(lambda tx: tx.handoffs.withdraw_handoff(withdrawn, "it took too long"))
            (binding,) = await terminal.bindings(withdrawn)
            await here.shown(binding.address, GREETING)
        assert (await terminal.state(withdrawn))["state"] == "completed"
        assert binding.address.chat_id == "ann"
        assert here.threads == ["slow", "ann"]  # the one in the other chat stays there, empty
