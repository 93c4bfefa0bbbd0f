"""Whoever works off what waits: one task at a time, woken as often as one likes, stopped without losing what waits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from talaria.core.errors import TalariaError
from talaria.core.events import TurnEnd, TurnStopped

Work = Callable[[], Coroutine[Any, Any, TurnEnd | None]]


class Worker:
    """Runs work as a task of ``jobs`` when woken, and once more for each time it was woken meanwhile.

    It holds on to that only as long as it runs: whoever owns the worker would never be let go of otherwise.
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
        """Whether there is work going on."""
        return self._task is not None

    def wake(self, work: Work) -> None:
        """Begin, or look again behind what is going on."""
        if self._task is not None:
            self._woken = True
            return
        self._last = None
        self._begin(work)
        self._task = self._jobs.create_task(self._until_nothing_waits(work))

    async def finished(self) -> TurnEnd | None:
        """Wait until nothing is going on and return how the last of it ended, or raise what ended it."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if isinstance(self._last, TalariaError):
            raise self._last
        return self._last

    def stop(self) -> bool:
        """Cut off what is going on, for a person, and look for what waits then; ``False`` if there is nothing."""
        if self._run is None:
            return False
        self.stopping = self._woken = True
        self._run.cancel()
        return True

    async def close(self) -> None:
        """Cut off what is going on, to be gone on with later."""
        ending = [task for task in (self._task, self._run) if task is not None]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        self._task = self._run = None  # what has not even begun cannot see to that

    def _begin(self, work: Work) -> None:
        self._woken = False
        self._run = self._jobs.create_task(_attempt(work))

    async def _until_nothing_waits(self, work: Work) -> None:
        try:
            while self._run is not None:
                end = await self._end_of(self._run)
                self._last = end if end is not None else self._last
                if self._woken:
                    self._begin(work)
        finally:
            self._task = None

    async def _end_of(self, run: "asyncio.Task[TurnEnd | TalariaError | None]") -> TurnEnd | TalariaError | None:
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


async def _attempt(work: Work) -> TurnEnd | TalariaError | None:
    """Return what became of it: an error that was raised here would end everything else in the group as well."""
    try:
        return await work()
    except TalariaError as error:
        return error
