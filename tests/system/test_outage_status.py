"""`talaria gateway status` for a process that does not respond, and for a store that cannot be read."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.system.outage_fixture import OutageFixture

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer


@pytest.fixture
async def outage(tmp_path: Path, server: ModelServer) -> AsyncIterator[OutageFixture]:
    async with LoopbackNetwork() as network:
        outage = OutageFixture(tmp_path, server, network)
        outage.write_settings()
        yield outage


async def test_suspended_gateway_is_reported_as_running_with_an_error(outage: OutageFixture) -> None:
    async with outage.running() as process:
        address = (await outage.status())["address"]
        process.send_signal(signal.SIGSTOP)
        try:
            status = await outage.status()
            shown = await outage.run("gateway", "status")
        finally:
            process.send_signal(signal.SIGCONT)
        assert status["pid"] == process.pid
        assert status["error"] == f"Process {process.pid} is running, but its status at {address} can't be read."
        assert (shown.code, status["error"] in shown.out) == (0, True)
        await outage.until_status(lambda status: not status["error"])


async def test_running_gateway_is_found_while_its_store_cannot_be_read(outage: OutageFixture) -> None:
    async with outage.running() as process:
        outage.store.rename(outage.store.with_name("away.db"))
        assert (await outage.status())["pid"] == process.pid
        refused = await outage.run("gateway", "start")
        assert (refused.code, "already running" in refused.err) == (1, True)
        outage.store.with_name("away.db").rename(outage.store)


async def test_gateway_can_be_stopped_while_its_store_is_missing(outage: OutageFixture) -> None:
    async with outage.running():
        address = (await outage.status())["address"]
        outage.store.rename(outage.store.with_name("away.db"))
        await outage.until_status(lambda status: "moved away" in status["error"])
        assert (await outage.get(address, "/health"))[0] == 200
    outage.store.with_name("away.db").rename(outage.store)
    ended = await outage.run("gateway", "status")
    assert (ended.code, "SIGTERM" in ended.out) == (1, True)
    outage.check_log()
