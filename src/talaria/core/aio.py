"""Asyncio building blocks: run two coroutines together, shield or retry a write, supervise tasks, a stop signal."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar

from talaria.core.errors import StoreBusy, StoreError, StoreFull, StoreGone, TalariaError

T = TypeVar("T")
log = logging.getLogger(__name__)


@asynccontextmanager
async def running_with(companion: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``companion`` in parallel with the block; it ends with the block.

    If it fails, the block is cancelled and its error is raised, not wrapped in a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            companion_task = group.create_task(companion)
            yield
            companion_task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def run_with(work: Coroutine[Any, Any, T], companion: Coroutine[Any, Any, None]) -> T:
    """Return the result of ``work`` while ``companion`` runs in parallel, as in `running_with`.

    Every open stream of a server waits in here, so it does without the generator of `running_with`.
    """
    try:
        async with asyncio.TaskGroup() as group:
            companion_task = group.create_task(companion)
            result = await work
            companion_task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return result


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that made a task group fail first."""
    error = errors.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


class StopSignal(asyncio.Event):
    """A request to end the process; ``why`` is the first reason given.

    ``restarts`` asks for a restart afterwards. A second request sets ``hurry``.
    """

    why = ""
    restarts = False

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def request_restart(self, why: str) -> None:
        """Request the end of the process, and a restart afterwards."""
        self.restarts = True
        self.request_stop(why)

    def request_stop(self, why: str) -> None:
        """Request the end of the process."""
        if self.is_set():
            self.hurry.set()
        self.why = self.why or why
        self.set()


_TICKS = 5


class LoopTimer:
    """A one-shot timer that counts ``seconds`` in which the event loop was running.

    After a suspended process or a blocked loop, timers are due before results that arrived in the meantime are seen. A
    tick that is late by more than its own length is therefore not counted.
    """

    def __init__(self, seconds: float, call: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tick = seconds / _TICKS
        self._left = _TICKS
        self._call = call
        self._wait()

    def cancel(self) -> None:
        """Cancel the callback."""
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
    done = asyncio.Event()
    timer = LoopTimer(seconds, done.set)
    try:
        await done.wait()
    finally:
        timer.cancel()


async def shield_until_done(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]] | None = None) -> T:
    """Return the result of ``work``; if cancelled, wait for it, run ``undo`` on the result, then raise the
    cancellation, also if ``undo`` fails: a caller that handles the failure would run on.
    """
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if working.exception() is None and undo is not None:
            try:
                await undo(working.result())
            except TalariaError as error:
                log.warning("cancelled, but not undone: %s", error)
        raise


_PATIENCE = 10.0


class SupervisedTaskGroup(asyncio.TaskGroup):
    """A task group in which a failing task ends alone and returns ``None``.

    Leaving the block ends the remaining tasks; those still running after ``patience`` seconds are cancelled.
    """

    def __init__(self, patience: float = _PATIENCE) -> None:
        super().__init__()
        self._patience = patience
        self._started: set[asyncio.Task[Any]] = set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = asyncio.get_running_loop().call_later(self._patience, self._cancel_remaining)
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            ending.cancel()

    def create_task(  # type: ignore[override] # generators are nobody's work any more
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Start a task that ends with the group at the latest."""
        task = super().create_task(
            _log_failure(coro), name=name or getattr(coro, "__qualname__", None), context=context
        )
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        task.add_done_callback(lambda _: coro.close())  # never started if the task was cancelled before that
        return task

    def _cancel_remaining(self) -> None:
        for task in tuple(self._started):
            log.warning("%s did not finish in time and was cancelled", task.get_name())
            task.cancel()


async def _log_failure(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except TalariaError as error:
        log.warning("background task failed: %s", error)
        return None  # type: ignore[return-value]
    except Exception:  # other conversations must continue, whatever the error is
        log.exception("unexpected error in a background task")
        return None  # type: ignore[return-value]


# With these errors, nothing was written. With a broken connection, that is uncertain.
RETRYABLE_ERRORS: tuple[type[StoreError], ...] = (StoreBusy, StoreFull, StoreGone)
_RETRY_DELAY = 1.0
_NOTICE_AFTER = 5.0


async def retry_write(
    write: Callable[[], Coroutine[Any, Any, T]],
    on_store_wait: Callable[[], None] = lambda: None,
    *,
    patience: float = _NOTICE_AFTER,
    shielded: bool = False,
) -> T:
    """Call ``write`` until the store accepts it, and return its result.

    ``on_store_wait`` is called once if that takes longer than ``patience`` seconds. Raises errors that waiting does not
    fix, and those that leave in doubt whether something was written. A ``shielded`` write that is cancelled completes.
    """
    logged = ""
    warning = LoopTimer(patience, on_store_wait)
    try:
        while True:
            try:
                return await (shield_until_done(write()) if shielded else write())
            except RETRYABLE_ERRORS as error:
                if logged != str(error):
                    logged = str(error)
                    log.warning("waiting for the store: %s", error)
                await asyncio.sleep(_RETRY_DELAY)
    finally:
        warning.cancel()
