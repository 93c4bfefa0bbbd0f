"""A store that is locked or disappears: the gateway stays up, reports it, and catches up when it is back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest
from tests.system.outage_fixture import STORE_NOTICE, OutageFixture

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
def outage(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> OutageFixture:
    outage = OutageFixture(tmp_path, server, network)
    outage.write_settings()
    return outage


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


def find_rescued_copy(outage: OutageFixture) -> Path:
    (copy,) = outage.folder.glob("talaria.db.rescued-*")
    return copy


async def test_messages_are_answered_after_another_process_unlocks_the_store(outage: OutageFixture) -> None:
    async with outage.running():
        await outage.send_and_wait("ann", "one")
        other = lock_store(outage.store)
        for text in ("two", "three"):
            outage.network.say("ann", text)
        status = await outage.until_status(lambda status: "locked by another process" in status["error"])
        assert (await outage.get(status["address"], "/health"))[0] == 200
        assert (await outage.get(status["address"], "/ready"))[0] == 503
        await outage.wait_for_text("ann", STORE_NOTICE)
        other.execute("ROLLBACK")
        other.close()
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await outage.until_status(lambda status: not status["error"])
    outage.check_log()


async def test_exclusive_receiver_stays_connected_while_the_store_is_locked(
    tmp_path: Path, server: ModelServer
) -> None:
    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096, exclusive=True)) as network:
        outage = OutageFixture(tmp_path, server, network)
        outage.write_settings()
        async with outage.running():
            await outage.send_and_wait("ann", "one")
            other = lock_store(outage.store)
            await outage.until_status(lambda status: "locked by another process" in status["error"])
            network.say("ann", "two")
            await outage.wait_for_text("ann", STORE_NOTICE)
            assert (await outage.status())["networks"][0]["state"] == "connected"
            other.execute("ROLLBACK")
            other.close()
            await outage.shown("ann", "re: one", STORE_NOTICE, "re: two")
        outage.check_log()


async def test_turn_continues_while_its_store_is_locked(outage: OutageFixture) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "think":
            asked.set()
            await go.wait()
        return Say(f"re: {received.question}")

    outage.server.answering(answer)
    async with outage.running():
        outage.network.say("ann", "think")
        await asked.wait()
        other = lock_store(outage.store)
        await outage.until_status(lambda status: "locked by another process" in status["error"])
        outage.network.say("ann", "/status")
        await outage.wait_for_text(
            "ann", "A turn is running here. My database isn't responding, so I can't do anything else right now."
        )
        go.set()
        await outage.wait_for_text("ann", STORE_NOTICE)
        other.execute("ROLLBACK")
        other.close()
        await outage.wait_for_text("ann", "re: think")
        await outage.network.until(lambda: any("Turn: " in text for text in outage.network.shown("ann")))
    assert [call.question for call in outage.server.received].count("think") == 1
    outage.check_log()


async def test_gateway_resumes_when_the_store_file_is_moved_away_and_back(outage: OutageFixture) -> None:
    away = outage.store.with_name("away.db")
    async with outage.running():
        await outage.send_and_wait("ann", "one")
        outage.store.rename(away)
        for text in ("two", "three"):
            outage.network.say("ann", text)
        await outage.until_status(lambda status: "moved away" in status["error"])
        listed = await outage.run("sessions", "list")
        assert (listed.code, "still uses it" in listed.err) == (1, True)
        await outage.wait_for_text("ann", STORE_NOTICE)
        assert not outage.store.exists()
        away.rename(outage.store)
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await outage.until_status(lambda status: not status["error"])
    outage.check_log()


async def test_gateway_resumes_when_the_profile_folder_is_moved_away_and_back(outage: OutageFixture) -> None:
    away = outage.folder.with_name("away")
    async with outage.running():
        await outage.send_and_wait("ann", "one")
        address = (await outage.status())["address"]
        outage.folder.rename(away)
        outage.network.say("ann", "two")
        await outage.wait_for_text("ann", STORE_NOTICE)
        assert not outage.folder.exists()
        assert "moved away" in (await outage.get(address, "/status"))[1]
        away.rename(outage.folder)
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two")
    outage.check_log()


async def test_deleted_store_file_is_reported_and_rescued_without_loss(outage: OutageFixture) -> None:
    async with outage.running():
        await outage.send_and_wait("ann", "one")
        outage.store.unlink()
        outage.network.say("ann", "two")
        await outage.wait_for_text("ann", STORE_NOTICE)
        status = await outage.until_status(lambda status: "rescued-" in status["error"])
        assert "was deleted" in status["error"]
        assert not outage.store.exists()
    assert any(line["level"] == "critical" and "was deleted" in line["message"] for line in outage.log())
    find_rescued_copy(outage).rename(outage.store)
    async with outage.running():
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two")
    outage.check_log()


async def test_messages_are_answered_after_the_database_server_is_back(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres: PostgresServer
) -> None:
    outage = OutageFixture(tmp_path, server, network)
    outage.write_settings(store=f'url = "{postgres.url}"\n')
    async with outage.running():
        await outage.send_and_wait("ann", "one")
        await asyncio.to_thread(postgres.stop)
        for text in ("two", "three"):
            network.say("ann", text)
        status = await outage.until_status(lambda status: "can't be reached" in status["error"])
        assert (await outage.get(status["address"], "/health"))[0] == 200
        shown = await outage.run("gateway", "status")
        assert ("can't be reached" in shown.out, SESAME in shown.out + shown.err) == (True, False)
        await outage.wait_for_text("ann", STORE_NOTICE)
        await asyncio.to_thread(postgres.start)
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await outage.until_status(lambda status: not status["error"])
    outage.check_log()
    assert SESAME not in str(outage.log())


async def test_answer_of_a_turn_is_delivered_after_a_database_outage(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork, postgres: PostgresServer
) -> None:
    outage = OutageFixture(tmp_path, server, network)
    outage.write_settings(store=f'url = "{postgres.url}"\n')
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "think":
            asked.set()
            await go.wait()
        return Say(f"re: {received.question}")

    server.answering(answer)
    async with outage.running():
        network.say("ann", "think")
        await asked.wait()
        await asyncio.to_thread(postgres.stop)
        go.set()
        await outage.wait_for_text("ann", STORE_NOTICE)
        network.say("ann", "and then?")
        await asyncio.to_thread(postgres.start)
        await outage.wait_for_text("ann", "re: and then?")
        assert [text for text in network.shown("ann") if text != STORE_NOTICE] == ["re: think", "re: and then?"]
        await outage.until_status(lambda status: not status["error"])
    outage.check_log()
