"""A terminal while its handoff is pending: new messages, and withdrawal of the request."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.cli.chat.chat_screen import opened, ready, say, say_until
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import (
    GREETING,
    HandoffFixture,
    hand_off_from_terminal,
    open_handoff_fixture,
    request_home_handoff,
)

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.sessions.chat_directory import GATEWAY, HomeChat, write_home
from talaria.testing.clock import SettableClock
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import ModelServer
from talaria.testing.screen import Screen

HOME = Address("loopback", "ann")
SECONDS = 60
HANDING_OVER = re.compile("Handing off to Loopback")


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> StoreLocation:
    return StoreLocation("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))


@asynccontextmanager
async def terminal(here: HandoffFixture) -> AsyncIterator[Screen]:
    """Open a terminal with one answered message, and set a home chat."""
    (here.program.home / "work").mkdir(exist_ok=True)
    await here.terminal.write(lambda tx: write_home(tx, HomeChat(HOME)))
    async with opened(here.program) as screen:
        await ready(screen)
        await say(screen, "hello")
        await screen.wait_for(re.compile("re: hello"))
        yield screen


@asynccontextmanager
async def silent_gateway(here: HandoffFixture) -> AsyncIterator[None]:
    """Pretend that a gateway runs which claims no requests."""
    lease = await here.terminal.write(lambda tx: tx.leases.acquire(GATEWAY, timedelta(hours=1)))
    assert lease is not None
    yield
    await here.terminal.write(lambda tx: tx.leases.release(lease))


async def only_session(here: HandoffFixture) -> SessionId:
    (session,) = await here.terminal.write(lambda tx: tx.sessions.find(SessionFilter()))
    return session.id


async def hand_over(screen: Screen) -> None:
    await say_until(screen, "/handoff loopback", lambda: HANDING_OVER.search(screen.text) is not None)


def withdraw(tx: Transaction, session_id: SessionId) -> bool:
    return tx.handoffs.withdraw_handoff(session_id, "no")


async def texts(here: HandoffFixture, session_id: SessionId) -> list[str]:
    return await here.terminal.write(lambda tx: [one.message.text for one in tx.messages.load(session_id)])


@pytest.mark.one_engine
async def test_message_written_while_pending_is_answered_once_in_the_chat(
    tmp_path: Path, server: ModelServer, engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here, worker(here.program):
        await here.served()
        async with terminal(here) as screen:
            here.network.disrupt(Fault("thread", "delay", seconds=3))
            await hand_over(screen)
            await say(screen, "and the oars?")
            async with asyncio.timeout(SECONDS):
                assert await screen.process.wait() == 0
        session_id = await only_session(here)
        (binding,) = await here.terminal.bindings(session_id)
        expected = {GREETING, "re: and the oars?"}
        await here.network.until(lambda: set(here.seen(binding.address)) == expected)
        assert len(here.seen(binding.address)) == 2
        stored = await texts(here, session_id)
        assert stored.count("re: and the oars?") == 1
        assert not any("re: and the oars?" in line for line in screen.scrollback)


@pytest.mark.one_engine
async def test_ctrl_c_cancels_the_handoff_and_the_message_is_answered_in_the_terminal(
    tmp_path: Path, server: ModelServer, engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here, silent_gateway(here), terminal(here) as screen:
        await hand_over(screen)
        await say(screen, "and the oars?")
        await screen.wait_for(re.compile("I'll answer there, or here"))
        await screen.press("c-c")
        await screen.wait_for(re.compile("The conversation stays here: you cancelled it"))
        await screen.wait_for(re.compile(r"re: and the oars\?"))
        await say(screen, "/quit")
        async with asyncio.timeout(SECONDS):
            assert await screen.process.wait() == 0
        session_id = await only_session(here)
        assert (await here.terminal.state(session_id))["state"] == "failed"
        assert (await texts(here, session_id)).count("re: and the oars?") == 1


@pytest.mark.parametrize("keys", [["/", "q", "u", "i", "t", "enter"], ["c-d"]], ids=" ".join)
async def test_leaving_the_terminal_withdraws_the_request(
    tmp_path: Path, server: ModelServer, sqlite_engine: StoreLocation, keys: list[str]
) -> None:
    async with open_handoff_fixture(tmp_path, server, sqlite_engine) as here, silent_gateway(here):
        async with terminal(here) as screen:
            await hand_over(screen)
            await screen.press(*keys)
            async with asyncio.timeout(SECONDS):
                assert await screen.process.wait() == 0
        assert not any("store is closed" in line for line in screen.scrollback)
        assert (await here.terminal.state(await only_session(here)))["state"] == "failed"


async def test_gateway_that_starts_later_ignores_the_request_of_a_dead_terminal(
    tmp_path: Path, server: ModelServer, sqlite_engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, sqlite_engine) as here:
        earlier = sqlite_engine.open_store(SettableClock(datetime.now(UTC) - timedelta(hours=1)), "terminal")
        abandoned = await earlier.write(lambda tx: request_home_handoff(tx, HOME, "abandoned"))
        await earlier.close()
        async with worker(here.program):
            await here.served()
            fresh = await here.terminal.ask(lambda tx: request_home_handoff(tx, HOME, "fresh"))
            assert (await here.terminal.until_over(fresh))["state"] == "completed"
        assert (await here.terminal.state(abandoned))["state"] == "failed"
        assert await here.terminal.bindings(abandoned) == []


async def test_withdrawal_and_claim_of_a_handoff_never_both_succeed(
    tmp_path: Path, server: ModelServer, engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here, worker(here.program):
        await here.served()
        for number in range(0, 60, 5):
            session_id = await here.terminal.ask(lambda tx: request_home_handoff(tx, HOME, "boat"))
            for _ in range(number):  # the later the withdrawal, the further the gateway
                await here.terminal.state(session_id)
            withdrawn = await here.terminal.write(partial(withdraw, session_id=session_id))
            over = await here.terminal.until_over(session_id)
            bindings = await here.terminal.bindings(session_id)
            assert (over["state"], len(bindings)) == (("failed", 0) if withdrawn else ("completed", 1))


async def test_terminal_shows_how_to_resume_the_session(
    tmp_path: Path, server: ModelServer, sqlite_engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, sqlite_engine) as here, worker(here.program):
        await here.served()
        async with terminal(here) as screen:
            await hand_off_from_terminal(screen, "loopback")
        session_id = await only_session(here)
        shown = " ".join(" ".join(screen.scrollback).split())
        assert f"talaria chat -r {session_id}" in shown
        assert f"/resume {session_id}" in shown
