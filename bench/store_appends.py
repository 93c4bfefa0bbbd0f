"""Appends to the store and loading a transcript, each compared with bare SQLite."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from bench.store_floor import BareMessages, load_rows, open_bare
from bench.store_text import LONG_SESSION, Example, session_id_of, sessions_of
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.storage.tables.sessions import SEQ_BITS


class Appends(Struct, frozen=True):
    """How many messages were stored a second, and the longest wait for one in milliseconds."""

    rate: float
    worst: float


async def append_all(store: Store, examples: Sequence[Example], *, tasks: int) -> Appends:
    """Append messages one at a time from several tasks, each of which waits until its message is durable."""
    count = sessions_of(examples)
    await store.write(lambda transaction: create_sessions(transaction, count))
    remaining, waits = iter(examples), list[float]()
    start = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(_append_some(store, remaining, waits))
    return Appends(len(examples) / (perf_counter() - start), max(waits) * 1000)


def append_all_bare(path: Path, examples: Sequence[Example], *, at_once: int) -> Appends:
    """Store the same messages with as many in each commit as the store finds waiting."""
    bare = BareMessages(path, sessions_of(examples))
    start = perf_counter()
    waits = [bare.append(examples[first : first + at_once]) for first in range(0, len(examples), at_once)]
    rate = len(examples) / (perf_counter() - start)
    bare.close()
    return Appends(rate, max(waits) * 1000)


async def load_ours(store: Store, times: int) -> list[float]:
    """Load the transcript of the first conversation and return the milliseconds that each load took."""
    taken = list[float]()
    session_id = session_id_of(0)
    for _ in range(times):
        start = perf_counter()
        loaded = await store.read(lambda transaction: transaction.messages.load(session_id))
        taken.append((perf_counter() - start) * 1000)
        assert len(loaded) == LONG_SESSION
    return taken


def load_bare(path: Path, times: int) -> list[float]:
    """Fetch the same rows from the same file with a bare query."""
    bare = open_bare(path)
    taken = list[float]()
    for _ in range(times):
        start = perf_counter()
        bodies = load_rows(bare, 1 << SEQ_BITS, 2 << SEQ_BITS)
        taken.append((perf_counter() - start) * 1000)
        assert len(bodies) == LONG_SESSION
    bare.close()
    return taken


def create_sessions(transaction: Transaction, count: int) -> None:
    """Start conversations; the first has the number 1 in a new store."""
    for number in range(count):
        transaction.sessions.create(NewSession(source="cli", id=session_id_of(number)))


async def _append_some(store: Store, remaining: Iterator[Example], waits: list[float]) -> None:
    for one in remaining:
        session_id, messages = session_id_of(one.session), (one.message,)
        start = perf_counter()
        await store.write(lambda transaction: transaction.messages.append(session_id, messages))  # noqa: B023
        waits.append(perf_counter() - start)
