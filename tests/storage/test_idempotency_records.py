"""Answers to requests that may come again: kept for their time, and no longer."""

from contextlib import closing
from datetime import timedelta

import apsw
import psycopg
from tests.storage.engines import Place

from talaria.contracts.store import Transaction
from talaria.testing.clock import SettableClock

DAY = timedelta(days=1)


def _kept(place: Place) -> int:
    """Return how many there are, asking past the store."""
    if place.engine == "sqlite":
        with closing(apsw.Connection(place.address)) as raw:
            return int(raw.execute("SELECT count(*) FROM requests").get)
    with psycopg.connect(place.address) as server:
        found = server.execute(f"SELECT count(*) FROM {place.schema}.requests".encode()).fetchone()
        assert found is not None
        return int(found[0])


def test_what_is_over_goes_with_the_requests_that_come(place: Place, mine: Transaction, clock: SettableClock) -> None:
    for number in range(40):
        mine.responses.reserve_request(f"old {number}", "post", DAY)
        mine.responses.store_answer(f"old {number}", "post", "answer", DAY)
    assert _kept(place) == 40
    clock.advance(DAY)
    for number in range(3):
        mine.responses.reserve_request(f"new {number}", "post", DAY)
    assert _kept(place) == 3
