"""Tasks of an open session: a wakeable task for its turns, and follow-up tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from talaria.core.errors import TalariaError
from talaria.core.events import TurnEnd, TurnStopped
from talaria.core.ids import SessionId

log = logging.getLogger(__name__)


class FollowUpTasks:
    """Follow-up tasks of one session."""

    def __init__(self, session_id: SessionId, jobs: asyncio.TaskGroup) -> None:
        self._session_id = session_id
        self._jobs = jobs
        self._awaited: set[asyncio.Task[None]] = set()
        self._resumable: dict[object, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether any task is running."""
        return any(not task.done() for task in (*self._awaited, *self._resumable.values()))

    def start(self, job: Callable[[], Awaitable[None]]) -> None:
        """Start a task that `close` waits for."""
        task = self._jobs.create_task(self._log_errors(job))
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)

    def restart(self, key: object, job: Callable[[], Awaitable[None]]) -> None:
        """Start a task that can be interrupted at any time, replacing the one with the same key."""
        before = self._resumable.get(key)
        if before is not None:
            before.cancel()
        self._resumable[key] = self._jobs.create_task(self._log_errors(job))

    async def close(self, patience: float) -> None:
        """Cancel resumable tasks, wait up to ``patience`` seconds for the others, then cancel those."""
        for task in self._resumable.values():
            task.cancel()
        if self._awaited:
            await asyncio.wait(self._awaited, timeout=patience)
        for task in self._awaited:
            task.cancel()

    async def _log_errors(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TalariaError as error:
            log.info("session %s: %s", self._session_id, error)


Work = Callable[[], Coroutine[Any, Any, TurnEnd | None]]


class WakeableTask:
    """Task of ``jobs`` that runs work when woken, and once more if woken meanwhile.

    It references the work only while it runs, so that the owner of this task can be garbage-collected afterwards.
    """

    def __init__(self, jobs: asyncio.TaskGroup) -> None:
        self._jobs = jobs
        self._task: asyncio.Task[None] | None = None
        self._run: asyncio.Task[TurnEnd | TalariaError | None] | None = None
        self._woken = False
        self._last: TurnEnd | TalariaError | None = None
        self.stopping = False

    @property
    def busy(self) -> bool:
        """Whether work is running."""
        return self._task is not None

    def wake(self, work: Work) -> None:
        """Start the work, or run it again after the current run."""
        if self._task is not None:
            self._woken = True
            return
        self._last = None
        self._begin(work)
        self._task = self._jobs.create_task(self._run_until_idle(work))

    async def finished(self) -> TurnEnd | None:
        """Wait until idle and return how the last run ended, or raise its error."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if isinstance(self._last, TalariaError):
            raise self._last
        return self._last

    def stop(self) -> bool:
        """Cancel the current run on request of a person, then run again; ``False`` if none is running."""
        if self._run is None:
            return False
        self.stopping = self._woken = True
        self._run.cancel()
        return True

    async def close(self) -> None:
        """Cancel the current run, to be resumed later."""
        ending = [task for task in (self._task, self._run) if task is not None]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        self._task = self._run = None  # a task cancelled before it started does not reset these

    def _begin(self, work: Work) -> None:
        self._woken = False
        self._run = self._jobs.create_task(_return_error(work))

    async def _run_until_idle(self, work: Work) -> None:
        try:
            while self._run is not None:
                end = await self._wait_for(self._run)
                self._last = end if end is not None else self._last
                if self._woken:
                    self._begin(work)
        finally:
            self._task = None

    async def _wait_for(self, run: "asyncio.Task[TurnEnd | TalariaError | None]") -> TurnEnd | TalariaError | None:
        try:
            await asyncio.wait([run])
            return TurnStopped() if run.cancelled() else run.result()
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait([run])
            raise
        finally:
            self._run = None
            self.stopping = False


async def _return_error(work: Work) -> TurnEnd | TalariaError | None:
    """Return the result or the error of the work: raising it here would end the whole task group."""
    try:
        return await work()
    except TalariaError as error:
        return error
