"""Threads that own connections and work off one line of jobs for tasks of asyncio."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct

from talaria.core.errors import StoreError, StoreGone, StoreUnavailable
from talaria.storage.database import ConnectionDatabase, Outcome, Work

log = logging.getLogger(__name__)


class Orders(Struct, frozen=True):
    """What a crew does with the jobs it finds waiting, and when it does the upkeep.

    Upkeep waits until nothing has come for ``quiet`` seconds, but never longer than ``patience``.
    """

    perform: Callable[[ConnectionDatabase, list[Work]], list[Outcome]]
    at_once: int = 1
    upkeep: bool = False
    quiet: float = 0.05
    patience: float = 0.2


class _Job(Struct, frozen=True):
    work: Work
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Crew:
    """Up to ``size`` threads, each with a connection of its own, started as they are needed."""

    def __init__(self, name: str, size: int, open_database: Callable[[], ConnectionDatabase], orders: Orders) -> None:
        self._name = name
        self._size = size
        self._open = open_database
        self._orders = orders
        self._line: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        self._ended = False

    def hand_over(self, work: Work) -> "asyncio.Future[Any]":
        """Put work in line and return the future of its result."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if self._ended:
                raise StoreUnavailable("The store is closed.")
            self._line.put(_Job(work, future, loop))
            self._unfinished += 1
            if len(self._threads) < min(self._size, self._unfinished):
                thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def end(self) -> None:
        """Take no more work."""
        with self._lock:
            self._ended = True

    def finish(self) -> None:
        """Let every thread end behind the last job, and wait for that."""
        self.end()
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        database: ConnectionDatabase | None = None
        upkeep = _Upkeep(self._orders)
        while (jobs := self._next(upkeep.wait)) is not None:
            if jobs:
                database, outcomes = self._perform(database, [job.work for job in jobs])
                with self._lock:
                    self._unfinished -= len(jobs)
                _deliver(jobs, outcomes)
                if database is not None and not database.is_tended:
                    upkeep.needed()
            if database is not None and (not jobs or upkeep.overdue):
                upkeep.do_some(database)
        if database is not None:
            _close(database)

    def _next(self, wait: float | None) -> list[_Job] | None:
        """Return the jobs to do at once: none when ``wait`` seconds passed, ``None`` at the end."""
        try:
            first = self._line.get(timeout=wait)
        except Empty:
            return []
        if first is None:
            return None
        jobs = [first]
        for job in islice(self._waiting(), self._orders.at_once - 1):
            if job is None:
                self._line.put(None)
                break
            jobs.append(job)
        return jobs

    def _waiting(self) -> Iterator[_Job | None]:
        with suppress(Empty):
            while True:
                yield self._line.get_nowait()

    def _perform(
        self, database: ConnectionDatabase | None, works: list[Work]
    ) -> tuple[ConnectionDatabase | None, list[Outcome]]:
        try:
            database = database or self._open()
            outcomes = self._orders.perform(database, works)
        except Exception as error:  # noqa: BLE001 (handed to whoever asked for this work)
            outcomes = [Outcome(error=error)] * len(works)
        if database is not None and any(map(_calls_for_another, outcomes)):
            _close(database)
            database = None
        return database, outcomes


class _Upkeep:
    """When a thread should do the work that can wait."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._since: float | None = None
        self._begun = False
        self._told = ""

    @property
    def wait(self) -> float | None:
        """How long to wait for jobs before upkeep comes first; ``None`` is for ever."""
        if self._since is None:
            return None
        return 0 if self._begun else self._orders.quiet

    @property
    def overdue(self) -> bool:
        return self._since is not None and time.monotonic() - self._since > self._orders.patience

    def needed(self) -> None:
        if self._orders.upkeep and self._since is None:
            self._since = time.monotonic()

    def do_some(self, database: ConnectionDatabase) -> None:
        try:
            more = database.tend()
            self._told = ""
        except StoreError as error:
            if self._told != str(error):
                log.warning("upkeep of the store has to wait: %s", error)
            self._told = str(error)
            more = False
        self._begun = more
        self._since = time.monotonic() if more else None


def _deliver(jobs: list[_Job], outcomes: list[Outcome]) -> None:
    for loop, settled in _by_loop(jobs, outcomes).items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, settled)


def _by_loop(
    jobs: list[_Job], outcomes: list[Outcome]
) -> dict[asyncio.AbstractEventLoop, list[tuple["asyncio.Future[Any]", Outcome]]]:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        by_loop.setdefault(job.loop, []).append((job.future, outcome))
    return by_loop


def _settle(settled: list[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if outcome.error is None:
            future.set_result(outcome.value)
        elif isinstance(outcome.error, StopIteration):
            future.set_exception(RuntimeError("work raised StopIteration"))  # which no future can carry
        else:
            future.set_exception(outcome.error)


def _calls_for_another(outcome: Outcome) -> bool:
    """Tell whether a connection is of no use any more; one to a file that is gone may be all that is left of it."""
    return isinstance(outcome.error, StoreUnavailable) and not isinstance(outcome.error, StoreGone)


def _close(database: ConnectionDatabase) -> None:
    try:
        database.close()
    except StoreError as error:
        log.warning("the store did not close cleanly: %s", error)
