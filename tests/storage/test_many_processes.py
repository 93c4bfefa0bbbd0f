"""Several processes on one store: each item is claimed once, and no acknowledged write is lost."""

import random
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import apsw
import pytest
from tests.storage.concurrent_processes import first_answers, start_workers
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import Job
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.queues import Arrival, Outgoing
from talaria.contracts.stores.sessions import NewSession, SearchQuery, SessionFilter, StoredMessage
from talaria.core.addresses import Address
from talaria.core.ids import JobId, SessionId
from talaria.storage.tables.search import RANKED_LIMIT

COUNT = 10
MANY = 1_000_000  # more steps than a process can write before it is killed


@pytest.fixture
def store_location(new_store_location: StoreLocation) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    return new_store_location


def prepare(tx: Transaction) -> None:
    """Add ten items of every kind that can be claimed only once."""
    for number in map(str, range(COUNT)):
        session = tx.sessions.create(NewSession(source="handoff", title=number)).id
        tx.handoffs.request_handoff(session, "telegram")
        tx.inbox.add(Arrival(session_id=session, source="telegram", external_id=number, payload=number))
        address = Address("telegram", number)
        tx.outbox.add(Outgoing(key=number, session_id=session, address=address, payload=number))
        due = datetime.now(UTC) - timedelta(minutes=1)
        tx.jobs.put(Job(id=JobId(number), name=number, schedule="", payload="", next_at=due))


def test_eight_processes_claim_each_item_exactly_once(store_location: StoreLocation) -> None:
    database = store_location.open(SystemClock())
    database.write(prepare)
    with start_workers(8, "claim", store_location) as workers:
        claims: list[dict[str, list[str]]] = first_answers(workers)
    database.close()
    everything = [str(number) for number in range(COUNT)]
    claimed = {kind: sorted(chain.from_iterable(one[kind] for one in claims)) for kind in claims[0]}
    assert claimed == dict.fromkeys(["handoffs", "leases", "inbox", "outbox", "runs"], everything)


def test_parallel_writers_are_never_refused_and_lose_no_write(
    store_location: StoreLocation, request: pytest.FixtureRequest
) -> None:
    seconds = 10 if request.config.getoption("--long") else 2
    with start_workers(4, "endure", store_location, str(seconds)) as workers:
        reports: list[dict[str, Any]] = first_answers(workers)
    database = store_location.open(SystemClock())
    sessions = database.read(lambda tx: {one.id: one for one in tx.sessions.find(SessionFilter(source="endurance"))})
    stored = {one: [message.seq for message in load(database, one)] for one in sessions}
    database.close()
    assert [report["busy"] for report in reports] == [[]] * 4
    assert {report["session"]: report["acknowledged"] for report in reports} == stored
    assert all(len(numbers) > 10 for numbers in stored.values())
    assert damages(store_location) == []


def test_killed_writer_loses_no_acknowledged_write(store_location: StoreLocation) -> None:
    chance = random.Random(7)
    database = store_location.open(SystemClock())
    session = database.write(lambda tx: tx.sessions.create(NewSession(source="cli"))).id
    for _ in range(4):
        acknowledged = write_until_killed(store_location, session, chance.randint(1, 60))
        stored = [message.seq for message in load(database, session)]
        assert stored == list(range(1, len(stored) + 1))
        assert acknowledged <= len(stored)
        steps = database.read(lambda tx: [event.payload for event in tx.events.after("steps", 0, limit=MANY)])
        assert steps == [str(last) for last in range(8, len(stored) + 1, 8)]
        last = database.read(lambda tx: tx.named_values.get("test", "last"))
        assert last is not None
        assert last.value == str(len(stored))
        assert damages(store_location) == []
    hits = database.read(lambda tx: tx.search.find(SearchQuery(text="heron", limit=3000)))
    database.close()
    assert set(stored[-RANKED_LIMIT:]) <= {hit.seq for hit in hits}  # more where the last ones are not indexed yet


def write_until_killed(store_location: StoreLocation, session: SessionId, first_answers: int) -> int:
    """Return the last message number that a process reported before it was killed after some answers."""
    with start_workers(1, "write", store_location, session) as [worker]:
        worker.start()
        reported: list[int] = [worker.read_answer() for _ in range(first_answers)]
        worker.kill()
        while (more := worker.read_answer()) is not None:
            reported.append(more)
    return max(reported)


def load(database: Database, session: SessionId) -> list[StoredMessage]:
    return database.read(lambda tx: tx.messages.load(session))


def damages(store_location: StoreLocation) -> list[str]:
    """Return the problems that SQLite's integrity check finds in the file."""
    if store_location.engine != "sqlite":
        return []
    raw = apsw.Connection(store_location.address)
    try:
        found = [str(row[0]) for row in raw.execute("PRAGMA integrity_check")]
        raw.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    finally:
        raw.close()
    return [one for one in found if one != "ok"]
