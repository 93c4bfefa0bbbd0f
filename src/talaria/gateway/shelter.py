"""Tasks of many conversations in one group, of which none takes the others down."""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any, TypeVar

from talaria.core.errors import TalariaError

T = TypeVar("T")
_PATIENCE = 10.0

log = logging.getLogger(__name__)


class Shelter(asyncio.TaskGroup):
    """A group of tasks in which a failure ends the task that has it, and nothing else; that task returns ``None``.

    Whoever leaves the block has ended what went on; what has not come to its end ``patience`` seconds later is cut off.
    """

    def __init__(self, patience: float = _PATIENCE) -> None:
        super().__init__()
        self._patience = patience
        self._begun: set[asyncio.Task[Any]] = set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = asyncio.get_running_loop().call_later(self._patience, self._cut_off)
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            ending.cancel()

    def create_task(  # type: ignore[override] # generators are nobody's work any more
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Begin something that ends with the group at the latest."""
        task = super().create_task(_sheltered(coro), name=name or getattr(coro, "__qualname__", None), context=context)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        task.add_done_callback(lambda _: coro.close())  # which was not begun if the task was cancelled before that
        return task

    def _cut_off(self) -> None:
        for task in tuple(self._begun):
            log.warning("%s has not come to its end, and is cut off", task.get_name())
            task.cancel()


async def _sheltered(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except TalariaError as error:
        log.warning("something was not done: %s", error)
        return None  # type: ignore[return-value]
    except Exception:  # whatever it is, other conversations go on
        log.exception("something failed that should not have")
        return None  # type: ignore[return-value]
