"""One gateway for a store, for as long as it lives."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.storage.engines import Place

from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Store
from talaria.core.errors import Refused
from talaria.core.ids import WorkerId
from talaria.gateway.heartbeat import WorkerHeartbeat
from talaria.runtime.workers import WorkerStatus, is_gateway_alive
from talaria.testing.wait import LIMIT

LEASE = timedelta(seconds=0.6)


@pytest.fixture
async def stores(place: Place) -> AsyncIterator[list[Store]]:
    """The same store as two workers have it open."""
    opened = [place.open_store(SystemClock(), worker) for worker in ("worker-1", "worker-2")]
    yield list[Store](opened)
    for store in opened:
        await store.close()


def presence(store: Store, worker: str) -> WorkerHeartbeat:
    now = datetime.now(UTC)
    status = WorkerStatus(worker=WorkerId(worker), pid=1, host="here", started=now, at=now, version="1")

    async def lapsed() -> None:
        """Release nothing."""

    return WorkerHeartbeat(store, status.worker, lambda: status, LEASE, lapsed)


@pytest.mark.slow
async def test_a_gateway_stays_the_only_one_until_it_ends(stores: list[Store]) -> None:
    first, second = presence(stores[0], "one"), presence(stores[1], "two")
    await first.claim(as_worker=False)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(first.serve())
        until = asyncio.get_running_loop().time() + 3 * LEASE.total_seconds()
        while asyncio.get_running_loop().time() < until:
            with pytest.raises(Refused):
                await second.claim(as_worker=False)
            assert await stores[1].read(is_gateway_alive)
        serving.cancel()
    assert not await stores[1].read(is_gateway_alive)
    await second.claim(as_worker=False)


@pytest.mark.slow
async def test_a_worker_alongside_it_becomes_the_gateway_when_it_ends(stores: list[Store]) -> None:
    first, second = presence(stores[0], "one"), presence(stores[1], "two")
    await first.claim(as_worker=False)
    await second.claim(as_worker=True)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(second.serve())
        async with asyncio.timeout(LIMIT):
            while (held := await stores[0].read(lambda tx: tx.leases.get("gateway"))) is None or (
                held.owner != "worker-2"
            ):
                continue
        serving.cancel()
