"""What `talaria gateway status` says of a process that does not answer, and of a store that cannot be read."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.system.outage_fixture import Scene

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer


@pytest.fixture
async def scene(tmp_path: Path, server: ModelServer) -> AsyncIterator[Scene]:
    async with LoopbackNetwork() as network:
        scene = Scene(tmp_path, server, network)
        scene.settle()
        yield scene


async def test_a_process_that_is_held_up_is_not_taken_for_dead(scene: Scene) -> None:
    async with scene.running() as process:
        address = (await scene.status())["address"]
        process.send_signal(signal.SIGSTOP)
        try:
            status = await scene.status()
            told = await scene.run("gateway", "status")
        finally:
            process.send_signal(signal.SIGCONT)
        assert status["pid"] == process.pid
        assert status["error"] == f"Process {process.pid} is running, but its status at {address} can't be read."
        assert (told.code, status["error"] in told.out) == (0, True)
        await scene.until_status(lambda status: not status["error"])


async def test_a_store_that_cannot_be_read_hides_no_gateway_and_stops_none_from_being_ended(scene: Scene) -> None:
    async with scene.running() as process:
        scene.store.rename(scene.store.with_name("away.db"))
        assert (await scene.status())["pid"] == process.pid
        refused = await scene.run("gateway", "start")
        assert (refused.code, "already running" in refused.err) == (1, True)
        scene.store.with_name("away.db").rename(scene.store)


async def test_a_gateway_can_be_ended_while_its_store_is_away(scene: Scene) -> None:
    async with scene.running():
        address = (await scene.status())["address"]
        scene.store.rename(scene.store.with_name("away.db"))
        await scene.until_status(lambda status: "moved away" in status["error"])
        assert (await scene.get(address, "/health"))[0] == 200
    scene.store.with_name("away.db").rename(scene.store)
    ended = await scene.run("gateway", "status")
    assert (ended.code, "SIGTERM" in ended.out) == (1, True)
    scene.check_log()
