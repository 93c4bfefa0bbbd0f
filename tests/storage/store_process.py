"""A process that works on a store: ``python -m tests.storage.store_process TASK ENGINE ADDRESS SCHEMA …``.

It prints ``ready``, waits for a line, runs its task and answers with lines of JSON.
"""

import asyncio
import json
import os
import pwd
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tests.contracts.sample_messages import text_message
from tests.contracts.session_leases import claim_session_lease
from tests.storage.engines import StoreLocation, parse_store_location

from talaria.contracts.clock import SystemClock
from talaria.contracts.jobs import Job
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.errors import StoreBusy, StoreError, StoreUnavailable
from talaria.core.ids import SessionId, new_turn_id, new_worker_id

MINUTE = timedelta(minutes=1)


def main(arguments: list[str]) -> None:
    """Run the named task."""
    task, store_location, more = arguments[0], parse_store_location(arguments[1:4]), arguments[4:]
    tasks: dict[str, Callable[..., None]] = {
        "claim": claim,
        "open": open_first,
        "endure": endure,
        "write": write_on,
        "fill": fill,
        "intrude": intrude,
        "notify": notify,
    }
    tasks[task](store_location, *more)


def answer(value: object) -> None:
    """Write an answer to the parent and flush it."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def wait_for_start() -> None:
    answer("ready")
    sys.stdin.readline()


def claim(store_location: StoreLocation) -> None:
    """Claim as much as possible of everything that only one process may claim."""
    database = store_location.open(SystemClock(), new_worker_id())
    wait_for_start()
    answer(
        {
            "handoffs": claimed_handoffs(database),
            "leases": acquired_leases(database),
            "inbox": list(until_nothing(database, claimed_from_inbox)),
            "outbox": list(until_nothing(database, claimed_from_outbox)),
            "runs": started_runs(database),
        }
    )
    sys.stdin.readline()  # claims of a worker are free for others once its process has ended
    database.close()


def claimed_handoffs(database: Database) -> list[str]:
    pending = database.read(lambda tx: tx.sessions.find(SessionFilter(source="handoff")))

    def claims(session_id: SessionId) -> bool:
        return database.write(lambda tx: tx.handoffs.claim_handoff(session_id))

    return [session.title for session in pending if claims(session.id)]


def acquired_leases(database: Database) -> list[str]:
    def acquires(name: str) -> bool:
        return database.write(lambda tx: tx.leases.acquire(name, MINUTE)) is not None

    return [name for name in map(str, range(10)) if acquires(name)]


def claimed_from_inbox(tx: Transaction) -> list[str]:
    claim = claim_session_lease(tx, MINUTE)
    return [item.payload for item in tx.inbox.take(claim, new_turn_id(), count=99)] if claim else []


def claimed_from_outbox(tx: Transaction) -> list[str]:
    return [item.payload for item in tx.outbox.claim("telegram", MINUTE, count=2)]


def until_nothing(database: Database, work: Callable[[Transaction], list[str]]) -> Iterator[str]:
    while claimed := database.write(work):
        yield from claimed


def started_runs(database: Database) -> list[str]:
    def begins(job: Job) -> bool:
        return database.write(lambda tx: tx.jobs.begin_run(job, next_at=None)) is not None

    return [job.name for job in database.read(lambda tx: tx.jobs.find(due=True)) if begins(job)]


def open_first(store_location: StoreLocation, *locations: str) -> None:
    """Open stores that may not exist yet, and report how many processes have written to each before."""
    wait_for_start()
    answer([_opened(StoreLocation(store_location.engine, *where.split("\n"))) for where in locations])


def _opened(store_location: StoreLocation) -> int | str:
    try:
        database = store_location.open(SystemClock())
        before = database.write(lambda tx: tx.named_values.put("test", "opened", "")) - 1
        database.close()
    except StoreError as error:
        return str(error)
    return before


def endure(store_location: StoreLocation, seconds: str) -> None:
    """Write from several tasks for some seconds; report acknowledged writes and those refused as busy."""
    wait_for_start()
    answer(asyncio.run(_endure(store_location, float(seconds))))


async def _endure(store_location: StoreLocation, seconds: float) -> dict[str, object]:
    store = store_location.open_store(SystemClock(), new_worker_id())
    session = (await store.write(lambda tx: tx.sessions.create(NewSession(source="endurance")))).id
    deadline = time.monotonic() + seconds
    acknowledged: list[int] = []
    busy: list[str] = []

    async def write_messages() -> None:
        while time.monotonic() < deadline:
            try:
                acknowledged.append(
                    await store.write(lambda tx: tx.messages.append(session, [text_message("word " * 50)]))
                )
            except StoreBusy as error:
                busy.append(str(error))

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(write_messages())
    await store.close()
    return {"session": session, "acknowledged": sorted(acknowledged), "busy": busy}


def write_on(store_location: StoreLocation, session: str) -> None:
    """Write steps that span several tables until killed; report the number of each durable step."""
    wait_for_start()
    asyncio.run(_write_on(store_location, SessionId(session)))


async def _write_on(store_location: StoreLocation, session: SessionId) -> None:
    store = store_location.open_store(SystemClock(), new_worker_id())

    def step(tx: Transaction) -> int:
        last = tx.messages.append(session, [text_message("heron " * 400) for _ in range(8)])
        tx.events.append("steps", [("step", str(last))])
        tx.named_values.put("test", "last", str(last))
        return last

    async def write_messages() -> None:
        while True:
            answer(await store.write(step))

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(write_messages())


def fill(store_location: StoreLocation, how: str) -> None:
    """Write until there is no more space, then free some, and report the result."""
    wait_for_start()
    answer(asyncio.run(_fill(store_location, how)))


async def _fill(store_location: StoreLocation, how: str) -> dict[str, object]:
    store = store_location.open_store(SystemClock(), new_worker_id())
    session = (await store.write(lambda tx: tx.sessions.create(NewSession(source="cli")))).id

    def step(tx: Transaction) -> int:
        tx.events.append("steps", [("step", "")])
        return tx.messages.append(session, [text_message("heron " * 400) for _ in range(8)])

    with scarcity(how, store_location):
        acknowledged, refusal = 0, ""
        while not refusal:
            try:
                acknowledged = await store.write(step)
            except StoreError as error:
                refusal = f"{type(error).__name__}: {error}"
        stored = await store.read(lambda tx: (len(tx.messages.load(session)), len(tx.events.after("steps", 0))))
    last = await store.write(step)
    await store.close()
    return {"acknowledged": acknowledged, "refusal": refusal, "stored": stored, "last": last}


@contextmanager
def scarcity(how: str, store_location: StoreLocation) -> Iterator[None]:
    """Limit the space on the disk, or of each file of this process."""
    if how == "disk":
        ballast = Path(store_location.address).with_name("ballast")
        ballast.write_bytes(bytes(2_000_000))
        yield
        ballast.unlink()
    else:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def intrude(store_location: StoreLocation) -> None:
    """Try to open a store as a user who may not write there."""
    wait_for_start()
    if os.geteuid() == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        store_location.open(SystemClock()).close()
        answer("opened")
    except StoreUnavailable as error:
        answer(str(error))


def notify(store_location: StoreLocation, topic: str) -> None:
    """Notify a topic as a short command does, and end."""
    wait_for_start()
    database = store_location.open(SystemClock())
    database.write(lambda tx: tx.notify(topic))
    database.close()


if __name__ == "__main__":
    main(sys.argv[1:])
