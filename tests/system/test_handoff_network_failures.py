"""Handoffs to a network that refuses, fails or is slow."""

from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import GREETING, open_handoff_fixture, request_home_handoff, start_session

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.handoff.service import request_handoff_to
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.loopback_platform.wire import Fault, FaultKind
from talaria.testing.model_server import ModelServer

HOME, ATTIC = Address("loopback", "ann"), Address("loopback", "attic")


@pytest.fixture
def store(tmp_path: Path) -> StoreLocation:
    return StoreLocation("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))


def request_attic_handoff(tx: Transaction) -> SessionId:
    write_home(tx, HomeChat(HOME))
    session_id = start_session(tx)
    request_handoff_to(tx, session_id, ATTIC)
    return session_id


async def test_handoff_waits_out_rate_limits_of_the_network(
    tmp_path: Path, server: ModelServer, store: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, store) as here, worker(here.program):
        await here.served()
        pauses = [Fault("thread", "slow_down", times=2, seconds=0.1), Fault("typing", "slow_down", seconds=600)]
        here.network.disrupt(*pauses)
        session_id = await here.terminal.ask(lambda tx: request_home_handoff(tx, HOME))
        assert (await here.terminal.until_over(session_id))["state"] == "completed"
        (binding,) = await here.terminal.bindings(session_id)
        assert binding.address.thread_id
        await here.shown(binding.address, GREETING)


@pytest.mark.one_engine
async def test_slow_handoff_does_not_delay_another_handoff(
    tmp_path: Path, server: ModelServer, engine: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here, worker(here.program):
        await here.served()
        here.network.disrupt(Fault("thread", "delay", chat_id=ATTIC.chat_id, seconds=10))
        slow = await here.terminal.ask(request_attic_handoff)
        await here.network.until(lambda: not here.network.faults)
        quick = await here.terminal.ask(lambda tx: request_home_handoff(tx, HOME, "quick"))
        for session_id in (quick, slow):
            assert (await here.terminal.until_over(session_id))["state"] == "completed"
        assert here.threads == ["ann", "attic"]


@pytest.mark.parametrize("trouble", ["refuse", "unreachable", "slow_down"])
async def test_session_continues_in_the_chat_itself_if_no_thread_can_be_created(
    tmp_path: Path, server: ModelServer, store: StoreLocation, trouble: FaultKind
) -> None:
    async with open_handoff_fixture(tmp_path, server, store) as here, worker(here.program):
        await here.served()
        here.network.disrupt(Fault("thread", trouble, seconds=600))
        session_id = await here.terminal.ask(lambda tx: request_home_handoff(tx, HOME))
        assert (await here.terminal.until_over(session_id))["state"] == "completed"
        (binding,) = await here.terminal.bindings(session_id)
        assert binding.address.thread_id == ""
        await here.shown(HOME, GREETING)


async def test_handoff_can_be_repeated_after_the_chat_refused_it(
    tmp_path: Path, server: ModelServer, store: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, store) as here, worker(here.program):
        await here.served()
        here.network.disrupt(Fault("typing", "refuse"))
        session_id = await here.terminal.ask(request_attic_handoff)
        over = await here.terminal.until_over(session_id)
        assert (over["state"], await here.terminal.bindings(session_id)) == ("failed", [])
        assert over["error"]
        await here.terminal.ask(lambda tx: request_handoff_to(tx, session_id, ATTIC))
        assert (await here.terminal.until_over(session_id))["state"] == "completed"
        assert here.threads == ["attic", "attic"]
        (binding,) = await here.terminal.bindings(session_id)
        await here.shown(binding.address, GREETING)


async def test_target_of_a_failed_handoff_is_not_used_for_the_next_one(
    tmp_path: Path, server: ModelServer, store: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, store) as here, worker(here.program):
        await here.served()
        here.network.disrupt(Fault("typing", "refuse"))
        session_id = await here.terminal.ask(request_attic_handoff)
        assert (await here.terminal.until_over(session_id))["state"] == "failed"
        assert await here.terminal.ask(lambda tx: tx.handoffs.request_handoff(session_id, "loopback"))
        assert (await here.terminal.until_over(session_id))["state"] == "completed"
        (binding,) = await here.terminal.bindings(session_id)
        assert binding.address.chat_id == HOME.chat_id
