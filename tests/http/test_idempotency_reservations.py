"""Reservations of idempotency keys: valid while their server renews them."""

import asyncio
from contextlib import closing
from datetime import timedelta

import apsw
import pytest
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Store
from talaria.core.ids import WorkerId, new_worker_id
from talaria.http.errors import Problem
from talaria.http.idempotency import IdempotencyStore, Reservation, StoredReply
from talaria.testing.clock import SettableClock
from talaria.testing.wait import until

_SECONDS = 0.06
_RESERVED = timedelta(seconds=_SECONDS)
_ANSWER = StoredReply(200, "text/plain", {}, b"yes")


async def _reserve_key(server: IdempotencyStore) -> StoredReply | Reservation:
    return await server.begin("key", "ann", "POST", "/v1/responses", b"{}")


async def test_reservation_expires_if_its_server_is_gone(store: Store, clock: SettableClock) -> None:
    elsewhere = IdempotencyStore(store, WorkerId("elsewhere:1:abc"), reserved=_RESERVED)
    here = IdempotencyStore(store, new_worker_id(), reserved=_RESERVED)
    late = await _reserve_key(elsewhere)
    assert isinstance(late, Reservation)
    with pytest.raises(Problem, match="still in progress"):
        await _reserve_key(here)
    clock.advance(_RESERVED)
    again = await _reserve_key(here)
    assert isinstance(again, Reservation)
    await elsewhere.end(late, StoredReply(200, "text/plain", {}, b"too late"))
    await here.end(again, _ANSWER)
    clock.advance(timedelta(hours=23))
    assert await _reserve_key(elsewhere) == _ANSWER


async def test_reservation_is_renewed_while_its_request_runs(
    sqlite_location: StoreLocation, clock: SettableClock
) -> None:
    store = sqlite_location.open_store(clock)
    elsewhere = IdempotencyStore(store, WorkerId("elsewhere:1:abc"), reserved=_RESERVED)
    reservation = await _reserve_key(elsewhere)
    assert isinstance(reservation, Reservation)

    async def renewed() -> bool:
        with closing(apsw.Connection(sqlite_location.address)) as raw:
            ends = int(raw.execute("SELECT expires_at FROM requests").get)
        return ends >= (clock.now().timestamp() + _SECONDS) * 1_000_000

    async with asyncio.TaskGroup() as group:
        holding = group.create_task(elsewhere.hold(reservation))
        for _ in range(3):
            clock.advance(_RESERVED * 0.9)
            await until(renewed)
            with pytest.raises(Problem, match="still in progress"):
                await _reserve_key(IdempotencyStore(store, new_worker_id(), reserved=_RESERVED))
        holding.cancel()
    await store.close()
