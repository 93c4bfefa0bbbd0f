"""Appends to the store and loading a transcript, each compared with bare SQLite."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from bench.store_floor import BareMessages, load_rows, open_bare
from bench.store_text import LONG_SESSION, Example, count_sessions, make_session_id
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.storage.tables.sessions import SEQ_BITS


class Appends(Struct, frozen=True):
    """Stored messages per second, and the longest wait for one in milliseconds."""

    rate: float
    worst: float


async def append_all(store: Store, examples: Sequence[Example], *, tasks: int) -> Appends:
    """Append messages one at a time from several tasks; each waits until its message is durable."""
    count = count_sessions(examples)
    await store.write(lambda transaction: create_sessions(transaction, count))
    remaining, waits = iter(examples), list[float]()
    start = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(_append_some(store, remaining, waits))
    return Appends(len(examples) / (perf_counter() - start), max(waits) * 1000)


def append_all_bare(path: Path, examples: Sequence[Example], *, at_once: int) -> Appends:
    """Store the same messages with bare SQLite, ``at_once`` of them per commit."""
    bare = BareMessages(path, count_sessions(examples))
    start = perf_counter()
    waits = [bare.append(examples[first : first + at_once]) for first in range(0, len(examples), at_once)]
    rate = len(examples) / (perf_counter() - start)
    bare.close()
    return Appends(rate, max(waits) * 1000)


async def load_ours(store: Store, times: int) -> list[float]:
    """Load the transcript of the first session repeatedly; return the milliseconds of each load."""
    durations = list[float]()
    session_id = make_session_id(0)
    for _ in range(times):
        start = perf_counter()
        loaded = await store.read(lambda transaction: transaction.messages.load(session_id))
        durations.append((perf_counter() - start) * 1000)
        assert len(loaded) == LONG_SESSION
    return durations


def load_bare(path: Path, times: int) -> list[float]:
    """Fetch the same rows from the same file with a bare query."""
    bare = open_bare(path)
    durations = list[float]()
    for _ in range(times):
        start = perf_counter()
        bodies = load_rows(bare, 1 << SEQ_BITS, 2 << SEQ_BITS)
        durations.append((perf_counter() - start) * 1000)
        assert len(bodies) == LONG_SESSION
    bare.close()
    return durations


def create_sessions(transaction: Transaction, count: int) -> None:
    """Create sessions; in a new store, the first has the number 1."""
    for number in range(count):
        transaction.sessions.create(NewSession(source="cli", id=make_session_id(number)))


async def _append_some(store: Store, remaining: Iterator[Example], waits: list[float]) -> None:
    for example in remaining:
        session_id, messages = make_session_id(example.session), (example.message,)
        start = perf_counter()
        await store.write(lambda transaction: transaction.messages.append(session_id, messages))  # noqa: B023
        waits.append(perf_counter() - start)
