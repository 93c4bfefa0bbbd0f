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
        self._woken = True
        if self._task is None:
            self._last = None
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _until_nothing_waits(self, work: Work) -> None:
        try:
            while self._woken:
                self._woken = False
                end = await self._once(work)
                self._last = end if end is not None else self._last
        finally:
            self._task = None

    async def _once(self, work: Work) -> TurnEnd | TalariaError | None:
        self._run = self._jobs.create_task(_attempt(work))
        try:
            await asyncio.wait([self._run])
            return TurnStopped() if self._run.cancelled() else self._run.result()
        except asyncio.CancelledError:
            self._run.cancel()
            await asyncio.wait([self._run])
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
