"""Stored answers to repeated requests are deleted after their lifetime."""

from contextlib import closing
from datetime import timedelta

import apsw
import psycopg
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Transaction
from talaria.testing.clock import SettableClock

DAY = timedelta(days=1)


def _count_requests(store_location: StoreLocation) -> int:
    """Return the number of stored requests, read directly from the database."""
    if store_location.engine == "sqlite":
        with closing(apsw.Connection(store_location.address)) as raw:
            return int(raw.execute("SELECT count(*) FROM requests").get)
    with psycopg.connect(store_location.address) as server:
        found = server.execute(f"SELECT count(*) FROM {store_location.schema}.requests".encode()).fetchone()
        assert found is not None
        return int(found[0])


def test_expired_requests_are_deleted_when_new_ones_arrive(
    store_location: StoreLocation, mine: Transaction, clock: SettableClock
) -> None:
    for number in range(40):
        mine.responses.reserve_request(f"old {number}", "post", DAY)
        mine.responses.store_answer(f"old {number}", "post", "answer", DAY)
    assert _count_requests(store_location) == 40
    clock.advance(DAY)
    for number in range(3):
        mine.responses.reserve_request(f"new {number}", "post", DAY)
    assert _count_requests(store_location) == 3
