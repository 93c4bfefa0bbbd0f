"""A store that is locked, or vanishes: the gateway stays up and says so, and catches up when it is back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest
from tests.system.outage_fixture import HELD_UP, Scene

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres

SESAME = "open-sesame-2718"


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


@pytest.fixture
def scene(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Scene:
    scene = Scene(tmp_path, server, network)
    scene.settle()
    return scene


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server that nobody else uses, and that asks for a password."""
    if find_postgres() is None:
        pytest.skip(MISSING)
    with PostgresServer(password=SESAME) as server:
        yield server


def held(store: Path) -> apsw.Connection:
    """Return a connection in whose transaction nobody else can write."""
    other = apsw.Connection(str(store))
    other.set_busy_timeout(10_000)
    other.execute("BEGIN IMMEDIATE")
    return other


def rescued(scene: Scene) -> Path:
    (copy,) = scene.folder.glob("talaria.db.rescued-*")
    return copy


async def test_a_file_that_another_process_holds_is_waited_for(scene: Scene) -> None:
    async with scene.running():
        await scene.answered("ann", "one")
        other = held(scene.store)
        for words in ("two", "three"):
            scene.network.say("ann", words)
        status = await scene.until_status(lambda status: "locked by another process" in status["error"])
        assert (await scene.get(status["address"], "/health"))[0] == 200
        assert (await scene.get(status["address"], "/ready"))[0] == 503
        await scene.told("ann", HELD_UP)
        other.execute("ROLLBACK")
        other.close()
        await scene.shown("ann", "re: one", HELD_UP, "re: two", "re: three")
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()


async def test_who_alone_may_receive_continues_receiving_while_the_store_is_held(
    tmp_path: Path, server: ModelServer
) -> None:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, exclusive=True)) as network:
        scene = Scene(tmp_path, server, network)
        scene.settle()
        async with scene.running():
            await scene.answered("ann", "one")
            other = held(scene.store)
            await scene.until_status(lambda status: "locked by another process" in status["error"])
            network.say("ann", "two")
            await scene.told("ann", HELD_UP)
            assert (await scene.status())["networks"][0]["state"] == "connected"
            other.execute("ROLLBACK")
            other.close()
            await scene.shown("ann", "re: one", HELD_UP, "re: two")
        scene.check_log()


async def test_a_turn_continues_while_its_store_is_held(scene: Scene) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "think":
            asked.set()
            await go.wait()
        return Say(f"re: {received.question}")

    scene.server.answering(answer)
    async with scene.running():
        scene.network.say("ann", "think")
        await asked.wait()
        other = held(scene.store)
        await scene.until_status(lambda status: "locked by another process" in status["error"])
        scene.network.say("ann", "/status")
        await scene.told(
            "ann", "A turn is running here. My database isn't responding, so I can't do anything else right now."
        )
        go.set()
        await scene.told("ann", HELD_UP)
        other.execute("ROLLBACK")
        other.close()
        await scene.told("ann", "re: think")
        await scene.network.until(lambda: any("Turn: " in text for text in scene.network.shown("ann")))
    assert [call.question for call in scene.server.received].count("think") == 1
    scene.check_log()


async def test_a_file_that_is_moved_away_and_back_is_resumed(scene: Scene) -> None:
    away = scene.store.with_name("away.db")
    async with scene.running():
        await scene.answered("ann", "one")
        scene.store.rename(away)
        for words in ("two", "three"):
            scene.network.say("ann", words)
        await scene.until_status(lambda status: "moved away" in status["error"])
        listed = await scene.run("sessions", "list")
        assert (listed.code, "still uses it" in listed.err) == (1, True)
        await scene.told("ann", HELD_UP)
        assert not scene.store.exists()
        away.rename(scene.store)
        await scene.shown("ann", "re: one", HELD_UP, "re: two", "re: three")
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()


async def test_a_profile_that_is_moved_away_and_back_is_resumed(scene: Scene) -> None:
    away = scene.folder.with_name("away")
    async with scene.running():
        await scene.answered("ann", "one")
        address = (await scene.status())["address"]
        scene.folder.rename(away)
        scene.network.say("ann", "two")
        await scene.told("ann", HELD_UP)
        assert not scene.folder.exists()
        assert "moved away" in (await scene.get(address, "/status"))[1]
        away.rename(scene.folder)
        await scene.shown("ann", "re: one", HELD_UP, "re: two")
    scene.check_log()


async def test_a_file_that_is_deleted_is_reported_and_nothing_of_it_is_lost(scene: Scene) -> None:
    async with scene.running():
        await scene.answered("ann", "one")
        scene.store.unlink()
        scene.network.say("ann", "two")
        await scene.told("ann", HELD_UP)
        status = await scene.until_status(lambda status: "rescued-" in status["error"])
        assert "was deleted" in status["error"]
        assert not scene.store.exists()
    assert any(line["level"] == "critical" and "was deleted" in line["message"] for line in scene.log())
    rescued(scene).rename(scene.store)
    async with scene.running():
        await scene.shown("ann", "re: one", HELD_UP, "re: two")
    scene.check_log()


async def test_a_database_server_that_goes_and_comes_back_is_waited_for(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres: PostgresServer
) -> None:
    scene = Scene(tmp_path, server, network)
    scene.settle(store=f'url = "{postgres.url}"\n')
    async with scene.running():
        await scene.answered("ann", "one")
        await asyncio.to_thread(postgres.stop)
        for words in ("two", "three"):
            network.say("ann", words)
        status = await scene.until_status(lambda status: "can't be reached" in status["error"])
        assert (await scene.get(status["address"], "/health"))[0] == 200
        told = await scene.run("gateway", "status")
        assert ("can't be reached" in told.out, SESAME in told.out + told.err) == (True, False)
        await scene.told("ann", HELD_UP)
        await asyncio.to_thread(postgres.start)
        await scene.shown("ann", "re: one", HELD_UP, "re: two", "re: three")
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()
    assert SESAME not in str(scene.log())


async def test_a_turn_whose_database_server_goes_away_is_answered_when_it_is_back(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres: PostgresServer
) -> None:
    scene = Scene(tmp_path, server, network)
    scene.settle(store=f'url = "{postgres.url}"\n')
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "think":
            asked.set()
            await go.wait()
        return Say(f"re: {received.question}")

    server.answering(answer)
    async with scene.running():
        network.say("ann", "think")
        await asked.wait()
        await asyncio.to_thread(postgres.stop)
        go.set()
        await scene.told("ann", HELD_UP)
        network.say("ann", "and then?")
        await asyncio.to_thread(postgres.start)
        await scene.told("ann", "re: and then?")
        assert [text for text in network.shown("ann") if text != HELD_UP] == ["re: think", "re: and then?"]
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()
