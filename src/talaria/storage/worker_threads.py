"""Worker threads that own database connections and run queued work for asyncio tasks."""

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


class BatchPolicy(Struct, frozen=True):
    """Policy of worker threads: how they run batches of queued jobs, and when maintenance.

    A batch has at most ``at_once`` jobs. Maintenance runs after ``quiet`` seconds without a job, and between batches
    once it has been needed for ``patience`` seconds.
    """

    perform: Callable[[ConnectionDatabase, list[Work]], list[Outcome]]
    at_once: int = 1
    maintenance: bool = False
    quiet: float = 0.05
    patience: float = 0.2


class _Job(Struct, frozen=True):
    work: Work
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class WorkerThreads:
    """Pool of up to ``size`` threads, started on demand, each with its own connection."""

    def __init__(
        self, name: str, size: int, open_database: Callable[[], ConnectionDatabase], policy: BatchPolicy
    ) -> None:
        self._name = name
        self._size = size
        self._open_database = open_database
        self._policy = policy
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        self._ended = False

    def hand_over(self, work: Work) -> "asyncio.Future[Any]":
        """Queue work and return the future of its result; raises `StoreUnavailable` after `end`."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            if self._ended:
                raise StoreUnavailable("The store is closed.")
            self._queue.put(_Job(work, future, loop))
            self._unfinished += 1
            if len(self._threads) < min(self._size, self._unfinished):
                thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def end(self) -> None:
        """Reject new work from now on."""
        with self._lock:
            self._ended = True

    def finish(self) -> None:
        """Reject new work and block until queued jobs are done and all threads have ended."""
        self.end()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        database: ConnectionDatabase | None = None
        maintenance = _Maintenance(self._policy)
        while (jobs := self._take_batch(maintenance.wait)) is not None:
            if jobs:
                database, outcomes = self._run_batch(database, [job.work for job in jobs])
                with self._lock:
                    self._unfinished -= len(jobs)
                _deliver_outcomes(jobs, outcomes)
                if database is not None and not database.is_maintained:
                    maintenance.mark_needed()
            if database is not None and (not jobs or maintenance.is_overdue):
                maintenance.run_step(database)
        if database is not None:
            _close(database)

    def _take_batch(self, wait: float | None) -> list[_Job] | None:
        """Return the next batch: empty after ``wait`` seconds without a job, ``None`` at shutdown."""
        try:
            first = self._queue.get(timeout=wait)
        except Empty:
            return []
        if first is None:
            return None
        jobs = [first]
        for job in islice(self._iterate_queued(), self._policy.at_once - 1):
            if job is None:
                self._queue.put(None)
                break
            jobs.append(job)
        return jobs

    def _iterate_queued(self) -> Iterator[_Job | None]:
        with suppress(Empty):
            while True:
                yield self._queue.get_nowait()

    def _run_batch(
        self, database: ConnectionDatabase | None, works: list[Work]
    ) -> tuple[ConnectionDatabase | None, list[Outcome]]:
        try:
            database = database or self._open_database()
            outcomes = self._policy.perform(database, works)
        except Exception as error:  # noqa: BLE001 (returned to the callers of this work)
            outcomes = [Outcome(error=error)] * len(works)
        if database is not None and any(map(_needs_new_connection, outcomes)):
            _close(database)
            database = None
        return database, outcomes


class _Maintenance:
    """Schedule of deferred maintenance for one thread."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._needed_since: float | None = None
        self._has_more = False
        self._logged_error = ""

    @property
    def wait(self) -> float | None:
        """Seconds to wait for a job before running maintenance; ``None`` waits without limit."""
        if self._needed_since is None:
            return None
        return 0 if self._has_more else self._policy.quiet

    @property
    def is_overdue(self) -> bool:
        return self._needed_since is not None and time.monotonic() - self._needed_since > self._policy.patience

    def mark_needed(self) -> None:
        if self._policy.maintenance and self._needed_since is None:
            self._needed_since = time.monotonic()

    def run_step(self, database: ConnectionDatabase) -> None:
        try:
            more = database.run_maintenance()
            self._logged_error = ""
        except StoreError as error:
            if self._logged_error != str(error):
                log.warning("store maintenance is postponed: %s", error)
            self._logged_error = str(error)
            more = False
        self._has_more = more
        self._needed_since = time.monotonic() if more else None


def _deliver_outcomes(jobs: list[_Job], outcomes: list[Outcome]) -> None:
    for loop, resolved in _group_by_loop(jobs, outcomes).items():
        with suppress(RuntimeError):  # the loop is closed and no task waits for the result
            loop.call_soon_threadsafe(_resolve_futures, resolved)


def _group_by_loop(
    jobs: list[_Job], outcomes: list[Outcome]
) -> dict[asyncio.AbstractEventLoop, list[tuple["asyncio.Future[Any]", Outcome]]]:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        by_loop.setdefault(job.loop, []).append((job.future, outcome))
    return by_loop


def _resolve_futures(resolved: list[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, outcome in resolved:
        if future.done():
            continue
        if outcome.error is None:
            future.set_result(outcome.value)
        elif isinstance(outcome.error, StopIteration):
            future.set_exception(RuntimeError("work raised StopIteration"))  # futures reject StopIteration
        else:
            future.set_exception(outcome.error)


def _needs_new_connection(outcome: Outcome) -> bool:
    """Return whether the connection must be replaced.

    After `StoreGone` it stays open: it may hold the only copy of a deleted file.
    """
    return isinstance(outcome.error, StoreUnavailable) and not isinstance(outcome.error, StoreGone)


def _close(database: ConnectionDatabase) -> None:
    try:
        database.close()
    except StoreError as error:
        log.warning("the store didn't close cleanly: %s", error)
