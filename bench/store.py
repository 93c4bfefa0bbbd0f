"""Appends, transcripts, search and size of the SQLite store, compared with bare SQLite."""

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import apsw
from msgspec import Struct

from bench.measure import Measurement
from bench.store_appends import Appends, append_all, append_all_bare, load_bare, load_ours
from bench.store_floor import BareSearch
from bench.store_lag import LoopLags, run_with_lag
from bench.store_postgres import print_postgres
from bench.store_search import CACHE, open_corpus, sample_queries, search_bare, search_ours
from bench.store_text import Example, MessageGenerator
from talaria.storage.async_store import ThreadedStore
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.sqlite.store import open_sqlite_store

NAME = "store"

_SESSIONS = 250
_SINGLE_TASK_COUNT = 2_000
_RUNS = 3


class _Run(Struct, frozen=True):
    """Results of the same appends to a store and to a bare SQLite file."""

    ours: Appends
    floor: Appends
    lags: LoopLags


def run(quick: bool) -> list[Measurement]:
    """Measure appends and loads on new stores, then search in a cached one."""
    print(f"SQLite {apsw.sqlite_lib_version()} in the store, {sqlite3.sqlite_version} bare", flush=True)
    CACHE.mkdir(exist_ok=True)
    examples = list(MessageGenerator(sessions=_SESSIONS).messages(10_000 if quick else 100_000))
    gc.collect()
    gc.freeze()  # keeps collections from scanning the examples during measurements
    with TemporaryDirectory(dir=CACHE) as folder:
        last = Path(folder) / "parallel-0"
        measurements = [
            *_measure_appends(Path(folder), examples),
            *_measure_loads(last, rounds=3, times=10 if quick else 50),
            _measure_size(last, examples),
        ]
    print_postgres(examples[:10_000])
    return [*measurements, *_measure_searches(50_000 if quick else 1_000_000, rounds=2 if quick else 4)]


def _measure_appends(folder: Path, examples: Sequence[Example]) -> Iterator[Measurement]:
    single = [
        asyncio.run(_append_both(folder / f"single-{number}", examples[:_SINGLE_TASK_COUNT], 1))
        for number in range(_RUNS)
    ]
    yield _compare_rates("appends, 1 task", single, 0.4)
    parallel = [asyncio.run(_append_both(folder / f"parallel-{number}", examples, 8)) for number in range(_RUNS)]
    yield _compare_rates("appends, 8 tasks", parallel, 0.5)
    yield Measurement(f"worst of {len(examples):,} appends", max(one.ours.worst for one in parallel), "ms", 100)
    yield _measure_lag("appends", [one.lags for one in parallel])


async def _append_both(path: Path, examples: Sequence[Example], tasks: int) -> _Run:
    async with _open_store(path) as store:
        ours, lags = await run_with_lag(append_all(store, examples, tasks=tasks))
    floor = append_all_bare(path.with_name(f"bare-{path.name}"), examples, at_once=tasks)
    print(
        f"{tasks} at once: worst append {ours.worst:.1f} ms, worst commit of bare SQLite {floor.worst:.1f} ms",
        flush=True,
    )
    return _Run(ours, floor, lags)


def _measure_loads(path: Path, *, rounds: int, times: int) -> Iterator[Measurement]:
    ours, floor, lags = asyncio.run(_load_both(path, rounds, times))
    yield Measurement("load of 1,000 messages", median(ours), "ms", 2, median(floor))
    yield _measure_lag("loads", lags)


async def _load_both(path: Path, rounds: int, times: int) -> tuple[list[float], list[float], list[LoopLags]]:
    ours, floor, lags = list[float](), list[float](), list[LoopLags]()
    async with _open_store(path) as store:
        for _ in range(rounds):
            durations, lag = await run_with_lag(load_ours(store, times))
            ours += durations
            floor += load_bare(path, times)
            lags.append(lag)
    return ours, floor, lags


def _measure_size(path: Path, examples: Sequence[Example]) -> Measurement:
    database = open_sqlite(path)
    while database.run_maintenance():
        pass
    database.close()
    stored = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    text = sum(len(one.message.text.encode()) for one in examples)
    return Measurement("disk space per MB of text", stored / text, "MB", 3)


def _measure_searches(count: int, *, rounds: int) -> Iterator[Measurement]:
    corpus = open_corpus(count)
    by_kind = list[list[LoopLags]]()
    for kind, texts in sample_queries().items():
        ours, floor, lags = asyncio.run(_search_both(corpus.store, corpus.bare, texts, rounds))
        by_kind.append(lags)
        yield Measurement(f"search {count:,}, {kind}, p50", median(ours), "ms", 1.5, median(floor))
        yield Measurement(f"search {count:,}, {kind}, p99", quantiles(ours, n=100)[98], "ms", 50)
    yield _measure_lag("searches", max(by_kind, key=_worst_excess))


async def _search_both(
    path: Path, bare_path: Path, texts: Sequence[str], rounds: int
) -> tuple[list[float], list[float], list[LoopLags]]:
    ours, floor, lags = list[float](), list[float](), list[LoopLags]()
    bare = BareSearch(bare_path)
    async with _open_store(path) as store:
        for _ in range(rounds):
            durations, lag = await run_with_lag(search_ours(store, texts))
            ours += durations
            floor += search_bare(bare, texts)
            lags.append(lag)
    bare.close()
    return ours, floor, lags


@asynccontextmanager
async def _open_store(path: Path) -> AsyncIterator[ThreadedStore]:
    store = open_sqlite_store(path)
    try:
        yield store
    finally:
        await store.close()


def _compare_rates(name: str, runs: Sequence[_Run], goal: float) -> Measurement:
    ours, floor = median(one.ours.rate for one in runs), median(one.floor.rate for one in runs)
    return Measurement(name, ours, "/s", goal, floor, at_least=True)


def _measure_lag(during: str, lags: Sequence[LoopLags]) -> Measurement:
    for one in lags:
        print(
            f"loop lag during {during}: p99 {one.ours.p99:.2f} ms, worst {one.ours.worst:.1f} ms;"
            f" an idle loop at the same time {one.idle.p99:.2f} ms, {one.idle.worst:.1f} ms",
            flush=True,
        )
    return Measurement(f"worst loop lag over idle, {during}", _worst_excess(lags), "ms", 20)


def _worst_excess(lags: Sequence[LoopLags]) -> float:
    """Return the worst of all runs, because the loop must never be blocked."""
    return max(one.excess for one in lags)
