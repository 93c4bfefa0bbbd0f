"""`talaria gateway status` for a process that does not respond, and for a store that cannot be read."""

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
        scene.write_settings()
        yield scene


async def test_suspended_gateway_is_reported_as_running_with_an_error(scene: Scene) -> None:
    async with scene.running() as process:
        address = (await scene.status())["address"]
        process.send_signal(signal.SIGSTOP)
        try:
            status = await scene.status()
            shown = await scene.run("gateway", "status")
        finally:
            process.send_signal(signal.SIGCONT)
        assert status["pid"] == process.pid
        assert status["error"] == f"Process {process.pid} is running, but its status at {address} can't be read."
        assert (shown.code, status["error"] in shown.out) == (0, True)
        await scene.until_status(lambda status: not status["error"])


async def test_running_gateway_is_found_while_its_store_cannot_be_read(scene: Scene) -> None:
    async with scene.running() as process:
        scene.store.rename(scene.store.with_name("away.db"))
        assert (await scene.status())["pid"] == process.pid
        refused = await scene.run("gateway", "start")
        assert (refused.code, "already running" in refused.err) == (1, True)
        scene.store.with_name("away.db").rename(scene.store)


async def test_gateway_can_be_stopped_while_its_store_is_missing(scene: Scene) -> None:
    async with scene.running():
        address = (await scene.status())["address"]
        scene.store.rename(scene.store.with_name("away.db"))
        await scene.until_status(lambda status: "moved away" in status["error"])
        assert (await scene.get(address, "/health"))[0] == 200
    scene.store.with_name("away.db").rename(scene.store)
    ended = await scene.run("gateway", "status")
    assert (ended.code, "SIGTERM" in ended.out) == (1, True)
    scene.check_log()
