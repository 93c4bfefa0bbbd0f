"""Many handoffs and many gateways on one PostgreSQL: each is carried out once, and slow ones delay no other."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import GREETING, open_handoff_fixture, request_home_handoff, start_session

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.handoff.service import request_handoff_to
from talaria.testing.loopback_platform.wire import Fault
from talaria.testing.model_server import ModelServer

GATEWAYS, REQUESTS = 4, 40
MANY_GATEWAYS, MANY_REQUESTS = 8, 100
HOME = Address("loopback", "crew", "group", user_id="ann")
SLOW = Address("loopback", "slow", "group", user_id="ann")


def request_all(tx: Transaction, gateways: int, requests: int) -> tuple[list[SessionId], list[SessionId]]:
    """Request as many slow handoffs as there are gateways, then quick ones."""
    slow = [start_session(tx, f"slow boat {number}") for number in range(gateways)]
    for session_id in slow:
        request_handoff_to(tx, session_id, SLOW)
    return slow, [request_home_handoff(tx, HOME, f"boat {number}") for number in range(requests)]


async def test_gateways_hand_off_many_sessions_once_each_despite_slow_ones(
    tmp_path: Path, server: ModelServer, postgres_location: StoreLocation, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    gateways, requests = (MANY_GATEWAYS, MANY_REQUESTS) if is_long else (GATEWAYS, REQUESTS)
    async with open_handoff_fixture(tmp_path, server, postgres_location) as here, AsyncExitStack() as stack:
        for _ in range(gateways):
            await stack.enter_async_context(worker(here.program))
        await here.served(gateways)
        here.network.disrupt(Fault("thread", "delay", times=0, chat_id=SLOW.chat_id, seconds=12))
        slow, quick = await here.terminal.ask(lambda tx: request_all(tx, gateways, requests))
        for session_id in quick:
            assert (await here.terminal.until_over(session_id))["state"] == "completed"
        for session_id in slow:
            assert (await here.terminal.until_over(session_id))["state"] == "completed"
        assert here.threads.index(SLOW.chat_id) >= gateways  # they were requested first
        bindings = [await here.terminal.bindings(session_id) for session_id in (*quick, *slow)]
        addresses = [binding.address for (binding,) in bindings]
        await here.network.until(lambda: all(here.seen(address) for address in addresses), seconds=120)
        assert len({(address.chat_id, address.thread_id) for address in addresses}) == len(addresses)
        assert sorted(here.threads) == [HOME.chat_id] * requests + [SLOW.chat_id] * gateways
        assert [here.seen(address) for address in addresses] == [[GREETING]] * len(addresses)
        for address in addresses[::10]:
            here.network.say(address, "and now?", sender="ann")
        await here.network.until(lambda: all(len(here.seen(address)) > 1 for address in addresses[::10]), seconds=120)
        assert [here.seen(address) for address in addresses[::10]] == [[GREETING, "re: [ann] and now?"]] * len(
            addresses[::10]
        )
