"""A worker that stalls in the middle of a transaction, for example on a suspended laptop."""

from contextlib import closing
from datetime import timedelta

import psycopg
import pytest
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Transaction
from talaria.core.errors import StoreUnavailable
from talaria.core.ids import WorkerId
from talaria.storage.database import ConnectionDatabase
from talaria.storage.postgres.open import PostgresOptions, open_postgres, open_postgres_store
from talaria.testing.clock import SettableClock

MINUTE = timedelta(minutes=1)
_IN_THE_MIDDLE = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'talaria' AND state = 'idle in transaction'"


def _options(store_location: StoreLocation, clock: SettableClock, worker: str) -> PostgresOptions:
    return PostgresOptions(store_location.schema, clock=clock, worker=WorkerId(worker), stall_seconds=1.0)


def _opened(store_location: StoreLocation, clock: SettableClock, worker: str) -> ConnectionDatabase:
    return open_postgres(store_location.address, _options(store_location, clock, worker))


@pytest.fixture(autouse=True)
def _create_tables(postgres_location: StoreLocation, clock: SettableClock) -> None:
    """Create the tables without the short limit."""
    postgres_location.open(clock).close()


def test_locks_of_a_stalled_worker_are_released_for_others(
    postgres_location: StoreLocation, clock: SettableClock
) -> None:
    with (
        closing(_opened(postgres_location, clock, "asleep")) as asleep,
        closing(_opened(postgres_location, clock, "b")) as b,
    ):
        asleep.connection.begin(write=True)
        assert asleep.connection.tables.leases.acquire("lane", MINUTE) is not None
        lease = b.write(lambda tx: tx.leases.acquire("lane", MINUTE))
        assert lease is not None
        assert lease.owner == "b"
        with pytest.raises(StoreUnavailable, match=r"undone|reached"):
            asleep.connection.commit()


async def test_store_of_a_stalled_worker_continues_with_a_new_connection(
    postgres_location: StoreLocation, clock: SettableClock
) -> None:
    def stall(tx: Transaction) -> None:
        tx.named_values.put("test", "said", "too late")
        with psycopg.connect(postgres_location.address, autocommit=True) as raw:
            while raw.execute(_IN_THE_MIDDLE).fetchone():
                pass

    store = open_postgres_store(postgres_location.address, _options(postgres_location, clock, "asleep"))
    with pytest.raises(StoreUnavailable):
        await store.write(stall)
    assert await store.write(lambda tx: tx.named_values.get("test", "said")) is None
    await store.close()
