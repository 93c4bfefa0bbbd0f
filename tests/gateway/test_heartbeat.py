"""Heartbeat of workers: one of them has the role of the gateway at a time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.storage.engines import StoreLocation
from tests.storage.slow_store import SlowStore

from talaria.contracts.store import Store
from talaria.contracts.stores.turns import Lease
from talaria.core.errors import Refused
from talaria.core.ids import WorkerId
from talaria.gateway.supervisor import WorkerHeartbeat
from talaria.runtime.workers import WorkerStatus, is_gateway_alive, read_workers
from talaria.sessions.chat_directory import GATEWAY
from talaria.testing.clock import SettableClock
from talaria.testing.wait import until

LEASE = timedelta(seconds=0.6)  # on a clock that stands still, so that none expires on a busy machine


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def stores(store_location: StoreLocation, clock: SettableClock) -> AsyncIterator[list[Store]]:
    """The same store as two workers have it open."""
    opened = [store_location.open_store(clock, worker) for worker in ("worker-1", "worker-2")]
    yield list[Store](opened)
    for store in opened:
        await store.close()


def heartbeat_of(store: Store, worker: str) -> WorkerHeartbeat:
    now = datetime.now(UTC)
    status = WorkerStatus(worker=WorkerId(worker), pid=1, host="here", started=now, at=now, version="1")

    async def lapsed() -> None:
        """Release nothing."""

    return WorkerHeartbeat(store, status.worker, lambda: status, LEASE, lapsed)


async def gateway_lease(store: Store) -> Lease | None:
    return await store.read(lambda tx: tx.leases.get(GATEWAY))


async def owner(store: Store) -> str | None:
    lease = await gateway_lease(store)
    return lease.owner if lease is not None else None


@pytest.mark.slow
async def test_second_gateway_is_refused_until_the_first_ends(stores: list[Store], clock: SettableClock) -> None:
    async def is_renewed() -> bool:
        lease = await gateway_lease(stores[1])
        assert lease is not None
        return lease.expires_at == clock.now() + LEASE

    first, second = heartbeat_of(stores[0], "one"), heartbeat_of(stores[1], "two")
    await first.claim(as_worker=False)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(first.serve())
        for _ in range(6):  # three times the lease
            clock.advance(LEASE / 2)
            with pytest.raises(Refused):
                await second.claim(as_worker=False)
            assert await stores[1].read(is_gateway_alive)
            await until(is_renewed)
        serving.cancel()
    assert not await stores[1].read(is_gateway_alive)
    await second.claim(as_worker=False)


@pytest.mark.slow
async def test_other_worker_becomes_the_gateway_when_the_lease_expires(
    stores: list[Store], clock: SettableClock
) -> None:
    async def is_taken_over() -> bool:
        return await owner(stores[0]) == "worker-2"

    first, second = heartbeat_of(stores[0], "one"), heartbeat_of(stores[1], "two")
    await first.claim(as_worker=False)
    await second.claim(as_worker=True)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(second.serve())
        await until(lambda: stores[0].read(lambda tx: read_workers(tx, clock.now())))
        assert await owner(stores[0]) == "worker-1"
        clock.advance(2 * LEASE)
        await until(is_taken_over)
        serving.cancel()


async def test_worker_stopped_while_becoming_the_gateway_releases_the_lease(stores: list[Store]) -> None:
    slow = SlowStore(stores[0])
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(heartbeat_of(slow, "worker-1").serve())
        await slow.committed.wait()
        assert await owner(stores[1]) == "worker-1"
        serving.cancel()
        slow.resumed.set()
    assert await owner(stores[1]) is None
    assert await stores[1].read(read_workers) == []
