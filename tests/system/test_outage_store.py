"""A store that is locked or disappears: the gateway stays up, reports it, and catches up when it is back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest
from tests.system.outage_fixture import STORE_NOTICE, Scene

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
    scene.write_settings()
    return scene


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server for one test, with a password."""
    if find_postgres() is None:
        pytest.skip(MISSING)
    with PostgresServer(password=SESAME) as server:
        yield server


def lock_store(store: Path) -> apsw.Connection:
    """Return a connection whose transaction blocks all other writers."""
    other = apsw.Connection(str(store))
    other.set_busy_timeout(10_000)
    other.execute("BEGIN IMMEDIATE")
    return other


def find_rescued_copy(scene: Scene) -> Path:
    (copy,) = scene.folder.glob("talaria.db.rescued-*")
    return copy


async def test_messages_are_answered_after_another_process_unlocks_the_store(scene: Scene) -> None:
    async with scene.running():
        await scene.send_and_wait("ann", "one")
        other = lock_store(scene.store)
        for text in ("two", "three"):
            scene.network.say("ann", text)
        status = await scene.until_status(lambda status: "locked by another process" in status["error"])
        assert (await scene.get(status["address"], "/health"))[0] == 200
        assert (await scene.get(status["address"], "/ready"))[0] == 503
        await scene.wait_for_text("ann", STORE_NOTICE)
        other.execute("ROLLBACK")
        other.close()
        await scene.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()


async def test_exclusive_receiver_stays_connected_while_the_store_is_locked(
    tmp_path: Path, server: ModelServer
) -> None:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, exclusive=True)) as network:
        scene = Scene(tmp_path, server, network)
        scene.write_settings()
        async with scene.running():
            await scene.send_and_wait("ann", "one")
            other = lock_store(scene.store)
            await scene.until_status(lambda status: "locked by another process" in status["error"])
            network.say("ann", "two")
            await scene.wait_for_text("ann", STORE_NOTICE)
            assert (await scene.status())["networks"][0]["state"] == "connected"
            other.execute("ROLLBACK")
            other.close()
            await scene.shown("ann", "re: one", STORE_NOTICE, "re: two")
        scene.check_log()


async def test_turn_continues_while_its_store_is_locked(scene: Scene) -> None:
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
        other = lock_store(scene.store)
        await scene.until_status(lambda status: "locked by another process" in status["error"])
        scene.network.say("ann", "/status")
        await scene.wait_for_text(
            "ann", "A turn is running here. My database isn't responding, so I can't do anything else right now."
        )
        go.set()
        await scene.wait_for_text("ann", STORE_NOTICE)
        other.execute("ROLLBACK")
        other.close()
        await scene.wait_for_text("ann", "re: think")
        await scene.network.until(lambda: any("Turn: " in text for text in scene.network.shown("ann")))
    assert [call.question for call in scene.server.received].count("think") == 1
    scene.check_log()


async def test_gateway_resumes_when_the_store_file_is_moved_away_and_back(scene: Scene) -> None:
    away = scene.store.with_name("away.db")
    async with scene.running():
        await scene.send_and_wait("ann", "one")
        scene.store.rename(away)
        for text in ("two", "three"):
            scene.network.say("ann", text)
        await scene.until_status(lambda status: "moved away" in status["error"])
        listed = await scene.run("sessions", "list")
        assert (listed.code, "still uses it" in listed.err) == (1, True)
        await scene.wait_for_text("ann", STORE_NOTICE)
        assert not scene.store.exists()
        away.rename(scene.store)
        await scene.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()


async def test_gateway_resumes_when_the_profile_folder_is_moved_away_and_back(scene: Scene) -> None:
    away = scene.folder.with_name("away")
    async with scene.running():
        await scene.send_and_wait("ann", "one")
        address = (await scene.status())["address"]
        scene.folder.rename(away)
        scene.network.say("ann", "two")
        await scene.wait_for_text("ann", STORE_NOTICE)
        assert not scene.folder.exists()
        assert "moved away" in (await scene.get(address, "/status"))[1]
        away.rename(scene.folder)
        await scene.shown("ann", "re: one", STORE_NOTICE, "re: two")
    scene.check_log()


async def test_deleted_store_file_is_reported_and_rescued_without_loss(scene: Scene) -> None:
    async with scene.running():
        await scene.send_and_wait("ann", "one")
        scene.store.unlink()
        scene.network.say("ann", "two")
        await scene.wait_for_text("ann", STORE_NOTICE)
        status = await scene.until_status(lambda status: "rescued-" in status["error"])
        assert "was deleted" in status["error"]
        assert not scene.store.exists()
    assert any(line["level"] == "critical" and "was deleted" in line["message"] for line in scene.log())
    find_rescued_copy(scene).rename(scene.store)
    async with scene.running():
        await scene.shown("ann", "re: one", STORE_NOTICE, "re: two")
    scene.check_log()


async def test_messages_are_answered_after_the_database_server_is_back(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres: PostgresServer
) -> None:
    scene = Scene(tmp_path, server, network)
    scene.write_settings(store=f'url = "{postgres.url}"\n')
    async with scene.running():
        await scene.send_and_wait("ann", "one")
        await asyncio.to_thread(postgres.stop)
        for text in ("two", "three"):
            network.say("ann", text)
        status = await scene.until_status(lambda status: "can't be reached" in status["error"])
        assert (await scene.get(status["address"], "/health"))[0] == 200
        shown = await scene.run("gateway", "status")
        assert ("can't be reached" in shown.out, SESAME in shown.out + shown.err) == (True, False)
        await scene.wait_for_text("ann", STORE_NOTICE)
        await asyncio.to_thread(postgres.start)
        await scene.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()
    assert SESAME not in str(scene.log())


async def test_answer_of_a_turn_is_delivered_after_a_database_outage(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres: PostgresServer
) -> None:
    scene = Scene(tmp_path, server, network)
    scene.write_settings(store=f'url = "{postgres.url}"\n')
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
        await scene.wait_for_text("ann", STORE_NOTICE)
        network.say("ann", "and then?")
        await asyncio.to_thread(postgres.start)
        await scene.wait_for_text("ann", "re: and then?")
        assert [text for text in network.shown("ann") if text != STORE_NOTICE] == ["re: think", "re: and then?"]
        await scene.until_status(lambda status: not status["error"])
    scene.check_log()
