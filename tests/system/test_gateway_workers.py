"""Several gateway workers on one PostgreSQL: turns of a lost worker are resumed, and nothing happens twice."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from bench.chaos import EXCLUSIVE, PLAIN, ChaosScenario, run_chaos
from tests.contracts.session_leases import claim_session_lease
from tests.gateway.in_process_gateway import run_gateway
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import LEASE, gateway_program, start_warm_gateway, worker

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import Arrival
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.ids import SessionId, new_id, new_turn_id
from talaria.runtime.workers import STORE_UNREACHABLE
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import LIMIT

SLACK = 2.0


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """A database for one test."""
    name = f"workers_{new_id()}".lower()
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name}".encode())
        yield f"{postgres_url.rpartition('/')[0]}/{name}"
        raw.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.mark.parametrize(
    ("by", "abilities"),
    [(signal.SIGKILL, EXCLUSIVE), (signal.SIGKILL, PLAIN), (signal.SIGSTOP, EXCLUSIVE)],
    ids=["killed", "killed-all-receive", "held-up"],
)
async def test_three_workers_answer_every_message_once_and_in_order(
    tmp_path: Path, database_url: str, by: signal.Signals, abilities: PlatformCapabilities
) -> None:
    kills = 2 if by == signal.SIGSTOP else 5
    scenario = ChaosScenario(
        messages=60, chats=6, kills=kills, by=by, abilities=abilities, workers=3, server=database_url
    )
    result = await run_chaos(scenario, tmp_path, seed=3, start=start_warm_gateway)
    assert (result.missing, result.answered_twice, result.out_of_order) == (0, 0, 0)
    assert result.posted_twice <= scenario.max_repeated_posts


def replies(network: LoopbackNetwork) -> list[str]:
    """The posted replies. On an overloaded machine the notice of a slow store may come before them."""
    return [post.text for post in network.posts if post.text != STORE_UNREACHABLE]


async def test_workers_that_receive_the_same_messages_start_one_session_per_chat(
    tmp_path: Path, postgres_location: StoreLocation
) -> None:
    chats = [f"c{number}" for number in range(40)]
    settings = f'[store]\nurl = "{postgres_location.address}"\nschema = "{postgres_location.schema}"\n'
    async with ModelServer() as server, LoopbackNetwork(PLAIN) as network, AsyncExitStack() as stack:
        server.answering(lambda received: Say(f"re: {received.question}"))
        workers = [
            await stack.enter_async_context(
                run_gateway(tmp_path / str(number), network.platform(), server.url, settings=settings)
            )
            for number in range(2)
        ]
        await network.until(lambda: network.receivers == len(workers))
        for chat in chats:
            network.say(chat, f"{chat} m0", sender=chat)
        await network.until(lambda: len(replies(network)) >= len(chats))
        sessions = await workers[0].application.store.read(lambda tx: tx.sessions.find(SessionFilter(limit=None)))
    assert len(sessions) == len(chats)
    assert sorted(replies(network)) == sorted(f"re: {chat} m0" for chat in chats)


async def test_turn_of_a_suspended_worker_is_taken_over(tmp_path: Path, database_url: str) -> None:
    async with ModelServer() as server, LoopbackNetwork() as network:
        program = gateway_program(tmp_path, server, network, database_url)
        server.script(Say("slow " * 100, pause=0.1))
        async with worker(program) as first:
            await network.until(lambda: network.receivers == 1)
            network.say("ann", "hello")
            await server.arrived(1)
            server.script(Say("All done."))
            async with worker(program):
                await network.until(lambda: network.receivers == 2)
                first.send_signal(signal.SIGSTOP)
                async with asyncio.timeout(LIMIT):
                    await server.arrived(2)
                await network.until(lambda: "All done." in network.shown("ann"))
                first.send_signal(signal.SIGCONT)
                first.terminate()
                async with asyncio.timeout(LIMIT):
                    await first.wait()
        assert [text for text in network.shown("ann") if text != STORE_UNREACHABLE] == ["All done."]


async def test_claiming_a_session_does_not_block_claims_of_other_sessions(postgres_location: StoreLocation) -> None:
    mine, theirs = (postgres_location.open_store(SystemClock(), worker) for worker in ("worker-1", "worker-2"))
    moment, claimed, done = timedelta(seconds=LEASE), threading.Event(), threading.Event()

    def fill(tx: Transaction) -> list[SessionId]:
        sessions = [tx.sessions.create(NewSession(source="loopback")).id for _ in range(2)]
        for session_id in sessions:
            tx.inbox.add(Arrival(session_id=session_id, source="loopback", external_id=session_id, payload="{}"))
        return sessions

    def claim_any(tx: Transaction) -> bool:
        assert claim_session_lease(tx, moment) is not None
        claimed.set()
        return done.wait(SLACK)

    def claim_second(tx: Transaction) -> int:
        claim = claim_session_lease(tx, moment, second)
        assert claim is not None
        return len(tx.inbox.take(claim, new_turn_id()))

    _, second = await mine.write(fill)
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(theirs.write(claim_any))
        await asyncio.to_thread(claimed.wait)
        assert await mine.write(claim_second) == 1
        done.set()
    assert claiming.result()
    await mine.close()
    await theirs.close()
