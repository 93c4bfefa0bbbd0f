"""Latency of notifications between processes, and the cost of idle subscriptions.

``python -m bench.store_notifications wake|idle ENGINE ADDRESS SECONDS`` is the subscribing process.
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
    """Measure SQLite, and PostgreSQL if it is installed."""
    rounds, seconds = (50, 5.0) if quick else (300, 20.0)
    with TemporaryDirectory() as folder:
        measurements = asyncio.run(_measure("sqlite", str(Path(folder) / "talaria.db"), rounds, seconds))
    if find_postgres() is None:
        print("PostgreSQL is not installed: not measured", flush=True)
        return measurements
    with PostgresServer() as server:
        return measurements + asyncio.run(_measure("postgres", server.url, rounds, seconds))


async def _measure(engine: str, address: str, rounds: int, seconds: float) -> list[Measurement]:
    waits = await _measure_waits(engine, address, rounds)
    median_goal, p99_goal = (50, 100) if engine == "sqlite" else (20, 50)
    return [
        Measurement(f"{engine}: commit to wake-up, p50", median(waits), "ms", median_goal),
        Measurement(f"{engine}: commit to wake-up, p99", quantiles(waits, n=100)[98], "ms", p99_goal),
        Measurement(
            f"{engine}: CPU of idle subscriptions", await _measure_idle_share(engine, address, seconds), "%", 0.5
        ),
    ]


async def _measure_waits(engine: str, address: str, rounds: int) -> list[float]:
    """Return the milliseconds from each commit in this process to the wake-up in another."""
    store = _open_store(engine, address, poll_seconds=_NEVER)
    rng = random.Random(1)
    waits = []
    async with _run_subscriber("wake", engine, address, 0) as output:
        await output.readline()
        for number in range(rounds):
            await asyncio.sleep(rng.uniform(0, _LONGEST_PAUSE))
            begun = monotonic()
            await store.write(lambda tx, number=number: (NUMBER.write(tx, SINGLE, number), tx.notify(_TOPICS[0])))  # type: ignore[misc]
            committed = monotonic()
            while (woken := float(await output.readline())) < begun:
                pass
            waits.append(max(0.0, woken - committed) * 1000)  # a commit may be seen before `write` returns
    await store.close()
    return waits


async def _measure_idle_share(engine: str, address: str, seconds: float) -> float:
    async with _run_subscriber("idle", engine, address, seconds) as output:
        return float(await output.readline())


@asynccontextmanager
async def _run_subscriber(task: str, engine: str, address: str, seconds: float) -> AsyncIterator[asyncio.StreamReader]:
    """Run the subscribing process, and yield its output."""
    arguments = ["-m", "bench.store_notifications", task, engine, address, str(seconds)]
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child.stdout
    finally:
        child.stdin.close()
        await child.wait()


def _open_store(engine: str, address: str, *, poll_seconds: float) -> ThreadedStore:
    if engine == "sqlite":
        return open_sqlite_store(Path(address), SqliteOptions(poll_seconds=poll_seconds))
    return open_postgres_store(address, PostgresOptions(poll_seconds=poll_seconds))


async def _serve_wake_ups(store: ThreadedStore) -> None:
    """Print the time of each wake-up until the input ends; the first one is at the start."""
    async with asyncio.TaskGroup() as group:
        printing = group.create_task(_print_wake_ups(store))
        await asyncio.to_thread(sys.stdin.readline)
        printing.cancel()


async def _print_wake_ups(store: ThreadedStore) -> None:
    async with store.subscribe(_TOPICS[0]) as subscription:
        while True:
            await subscription.wait()
            print(monotonic(), flush=True)


async def _print_idle_share(store: ThreadedStore, seconds: float) -> None:
    """Print the percentage of a core that idle subscriptions use, including periodic checks."""
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
    store = _open_store(engine, address, poll_seconds=_NEVER if task == "wake" else 1)
    await (_serve_wake_ups(store) if task == "wake" else _print_idle_share(store, seconds))
    await store.close()


if __name__ == "__main__":
    _task, _engine, _address, _seconds = sys.argv[1:]
    asyncio.run(_serve(_task, _engine, _address, float(_seconds)))
