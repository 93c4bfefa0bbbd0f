"""Timer that counts only time in which the event loop ran."""

import asyncio
from collections.abc import Callable

_TICKS = 5


class LoopTimer:
    """Calls back once, after ``seconds`` in which the event loop ran.

    A process that was stopped, or a loop that was blocked, finds its timers due before it gets to results that have
    arrived meanwhile. A tick that comes late by more than its own length is therefore not counted.
    """

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tick = seconds / _TICKS
        self._left = _TICKS
        self._call = call
        self._wait()

    def cancel(self) -> None:
        """Do not call back any more."""
        self._handle.cancel()

    def _wait(self) -> None:
        self._due = self._loop.time() + self._tick
        self._handle = self._loop.call_at(self._due, self._count)

    def _count(self) -> None:
        self._left -= self._loop.time() - self._due <= self._tick
        if self._left:
            self._wait()
        else:
            self._call()


async def sleep_while_running(seconds: float) -> None:
    """Return after ``seconds`` in which the event loop ran."""
    over = asyncio.Event()
    timer = LoopTimer(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
