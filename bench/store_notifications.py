"""Latency of a notification from one process to another, and the cost of idle subscriptions.

``python -m bench.store_notifications wake|idle ENGINE ADDRESS SECONDS`` is the process that subscribes.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import monotonic, process_time

from bench.measure import Measurement
from talaria.contracts.values import SINGLE, NamedValue
from talaria.storage.async_store import ThreadedStore
from talaria.storage.postgres.open import PostgresOptions, open_postgres_store
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.postgres import PostgresServer, find_postgres

NAME = "store-notifications"
NUMBER = NamedValue("bench_number", int)
_TOPICS = ("inbox", "outbox", "approvals")
_NEVER = 3600.0
_LONGEST_PAUSE = 0.1


def run(quick: bool) -> list[Measurement]:
    """Measure both engines; without an installed server, say so."""
    rounds, seconds = (50, 5.0) if quick else (300, 20.0)
    with TemporaryDirectory() as folder:
        figures = asyncio.run(_measure("sqlite", str(Path(folder) / "talaria.db"), rounds, seconds))
    if find_postgres() is None:
        print("PostgreSQL is not installed: not measured", flush=True)
        return figures
    with PostgresServer() as server:
        return figures + asyncio.run(_measure("postgres", server.url, rounds, seconds))


async def _measure(engine: str, address: str, rounds: int, seconds: float) -> list[Measurement]:
    waits = await _waits(engine, address, rounds)
    middle, late = (50, 100) if engine == "sqlite" else (20, 50)
    return [
        Measurement(f"{engine}: commit to wake-up, p50", median(waits), "ms", middle),
        Measurement(f"{engine}: commit to wake-up, p99", quantiles(waits, n=100)[98], "ms", late),
        Measurement(f"{engine}: processor, subscribed", await _idle_share(engine, address, seconds), "%", 0.5),
    ]


async def _waits(engine: str, address: str, rounds: int) -> list[float]:
    """Return the milliseconds from each commit here to the wake-up in another process."""
    store = _opened(engine, address, poll_seconds=_NEVER)
    chance = random.Random(1)
    waits = []
    async with _run_subscriber("wake", engine, address, 0) as told:
        await told.readline()
        for number in range(rounds):
            await asyncio.sleep(chance.uniform(0, _LONGEST_PAUSE))
            begun = monotonic()
            await store.write(lambda tx, number=number: (NUMBER.write(tx, SINGLE, number), tx.notify(_TOPICS[0])))  # type: ignore[misc]
            committed = monotonic()
            while (woken := float(await told.readline())) < begun:
                pass
            waits.append(max(0.0, woken - committed) * 1000)  # a commit may be seen before `write` returns
    await store.close()
    return waits


async def _idle_share(engine: str, address: str, seconds: float) -> float:
    async with _run_subscriber("idle", engine, address, seconds) as told:
        return float(await told.readline())


@asynccontextmanager
async def _run_subscriber(task: str, engine: str, address: str, seconds: float) -> AsyncIterator[asyncio.StreamReader]:
    """Run the process that subscribes, and yield its output."""
    words = ["-m", "bench.store_notifications", task, engine, address, str(seconds)]
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child.stdout
    finally:
        child.stdin.close()
        await child.wait()


def _opened(engine: str, address: str, *, poll_seconds: float) -> ThreadedStore:
    if engine == "sqlite":
        return open_sqlite_store(Path(address), SqliteOptions(poll_seconds=poll_seconds))
    return open_postgres_store(address, PostgresOptions(poll_seconds=poll_seconds))


async def _wake(store: ThreadedStore) -> None:
    """Print the time of each wake-up until the input ends; the first is at the start."""
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(_tell(store))
        await asyncio.to_thread(sys.stdin.readline)
        telling.cancel()


async def _tell(store: ThreadedStore) -> None:
    async with store.subscribe(_TOPICS[0]) as subscription:
        while True:
            await subscription.wait()
            print(monotonic(), flush=True)


async def _idle(store: ThreadedStore, seconds: float) -> None:
    """Print the share of a processor that subscriptions take while nothing is written, periodic checks included."""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(_wait_forever(store, topic)) for topic in _TOPICS]
        await asyncio.sleep(1)
        begun, used = monotonic(), process_time()
        await asyncio.sleep(seconds)
        share = (process_time() - used) / (monotonic() - begun)
        for task in waiting:
            task.cancel()
    print(share * 100, flush=True)


async def _wait_forever(store: ThreadedStore, topic: str) -> None:
    async with store.subscribe(topic) as subscription:
        while True:
            await subscription.wait()


async def _serve(task: str, engine: str, address: str, seconds: float) -> None:
    store = _opened(engine, address, poll_seconds=_NEVER if task == "wake" else 1)
    await (_wake(store) if task == "wake" else _idle(store, seconds))
    await store.close()


if __name__ == "__main__":
    _task, _engine, _address, _seconds = sys.argv[1:]
    asyncio.run(_serve(_task, _engine, _address, float(_seconds)))
