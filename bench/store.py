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
from bench.store_lag import LoopLags, with_lag
from bench.store_postgres import print_postgres
from bench.store_search import KEPT, corpus, queries, search_bare, search_ours
from bench.store_text import Example, Writer
from talaria.storage.async_store import ThreadedStore
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.sqlite.store import open_sqlite_store

NAME = "store"

_SESSIONS = 250
_ALONE = 2_000
_RUNS = 3


class _Run(Struct, frozen=True):
    """The same appends to a store and to a bare file."""

    ours: Appends
    floor: Appends
    lags: LoopLags


def run(quick: bool) -> list[Measurement]:
    """Measure appends and loads on new stores, then search in one that is kept."""
    print(f"SQLite {apsw.sqlite_lib_version()} in the store, {sqlite3.sqlite_version} bare", flush=True)
    KEPT.mkdir(exist_ok=True)
    examples = list(Writer(sessions=_SESSIONS).messages(10_000 if quick else 100_000))
    gc.collect()
    gc.freeze()  # so that no collection walks the examples while something is timed
    with TemporaryDirectory(dir=KEPT) as folder:
        last = Path(folder) / "together-0"
        figures = [
            *_append_figures(Path(folder), examples),
            *_load_figures(last, rounds=3, times=10 if quick else 50),
            _size_figure(last, examples),
        ]
    print_postgres(examples[:10_000])
    return [*figures, *_search_figures(50_000 if quick else 1_000_000, rounds=2 if quick else 4)]


def _append_figures(folder: Path, examples: Sequence[Example]) -> Iterator[Measurement]:
    alone = [asyncio.run(_append_both(folder / f"alone-{number}", examples[:_ALONE], 1)) for number in range(_RUNS)]
    yield _rate_figure("appends, 1 task", alone, 0.4)
    together = [asyncio.run(_append_both(folder / f"together-{number}", examples, 8)) for number in range(_RUNS)]
    yield _rate_figure("appends, 8 tasks", together, 0.5)
    yield Measurement(f"worst of {len(examples):,} appends", max(one.ours.worst for one in together), "ms", 100)
    yield _lag_figure("appends", [one.lags for one in together])


async def _append_both(path: Path, examples: Sequence[Example], tasks: int) -> _Run:
    async with _opened(path) as store:
        ours, lags = await with_lag(append_all(store, examples, tasks=tasks))
    floor = append_all_bare(path.with_name(f"bare-{path.name}"), examples, at_once=tasks)
    print(f"{tasks} at once: worst append {ours.worst:.1f} ms, worst commit bare {floor.worst:.1f} ms", flush=True)
    return _Run(ours, floor, lags)


def _load_figures(path: Path, *, rounds: int, times: int) -> Iterator[Measurement]:
    ours, floor, lags = asyncio.run(_load_both(path, rounds, times))
    yield Measurement("load of 1,000 messages", median(ours), "ms", 2, median(floor))
    yield _lag_figure("loads", lags)


async def _load_both(path: Path, rounds: int, times: int) -> tuple[list[float], list[float], list[LoopLags]]:
    ours, floor, lags = list[float](), list[float](), list[LoopLags]()
    async with _opened(path) as store:
        for _ in range(rounds):
            taken, lag = await with_lag(load_ours(store, times))
            ours += taken
            floor += load_bare(path, times)
            lags.append(lag)
    return ours, floor, lags


def _size_figure(path: Path, examples: Sequence[Example]) -> Measurement:
    database = open_sqlite(path)
    while database.run_maintenance():
        pass
    database.close()
    stored = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    text = sum(len(one.message.text.encode()) for one in examples)
    return Measurement("disk for each MB of text", stored / text, "MB", 3)


def _search_figures(count: int, *, rounds: int) -> Iterator[Measurement]:
    kept = corpus(count)
    by_kind = list[list[LoopLags]]()
    for kind, wanted in queries().items():
        ours, floor, lags = asyncio.run(_search_both(kept.store, kept.bare, wanted, rounds))
        by_kind.append(lags)
        yield Measurement(f"search {count:,}, {kind}, p50", median(ours), "ms", 1.5, median(floor))
        yield Measurement(f"search {count:,}, {kind}, p99", quantiles(ours, n=100)[98], "ms", 50)
    yield _lag_figure("searches", max(by_kind, key=_worst_excess))


async def _search_both(
    path: Path, bare_path: Path, wanted: Sequence[str], rounds: int
) -> tuple[list[float], list[float], list[LoopLags]]:
    ours, floor, lags = list[float](), list[float](), list[LoopLags]()
    bare = BareSearch(bare_path)
    async with _opened(path) as store:
        for _ in range(rounds):
            taken, lag = await with_lag(search_ours(store, wanted))
            ours += taken
            floor += search_bare(bare, wanted)
            lags.append(lag)
    bare.close()
    return ours, floor, lags


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[ThreadedStore]:
    store = open_sqlite_store(path)
    try:
        yield store
    finally:
        await store.close()


def _rate_figure(name: str, runs: Sequence[_Run], goal: float) -> Measurement:
    ours, floor = median(one.ours.rate for one in runs), median(one.floor.rate for one in runs)
    return Measurement(name, ours, "/s", goal, floor, at_least=True)


def _lag_figure(during: str, lags: Sequence[LoopLags]) -> Measurement:
    for one in lags:
        print(
            f"loop lag during {during}: p99 {one.ours.p99:.2f} ms, worst {one.ours.worst:.1f} ms;"
            f" an idle loop meanwhile {one.idle.p99:.2f} ms, {one.idle.worst:.1f} ms",
            flush=True,
        )
    return Measurement(f"worst loop lag over idle, {during}", _worst_excess(lags), "ms", 20)


def _worst_excess(lags: Sequence[LoopLags]) -> float:
    """Return the worst of all runs: the loop is never to be blocked, so a middle value would prove nothing."""
    return max(one.excess for one in lags)
