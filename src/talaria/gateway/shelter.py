"""Tasks of many conversations in one group, of which none takes the others down."""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

from talaria.core.errors import TalariaError

T = TypeVar("T")

log = logging.getLogger(__name__)


class Shelter(asyncio.TaskGroup):
    """A group of tasks in which a failure ends the task that has it, and nothing else; that task returns ``None``."""

    def create_task(  # type: ignore[override] # generators are nobody's work any more
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Begin something that ends with the group at the latest."""
        return super().create_task(_sheltered(coro), name=name, context=context)


async def _sheltered(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except TalariaError as error:
        log.warning("something was not done: %s", error)
        return None  # type: ignore[return-value]
    except Exception:  # whatever it is, other conversations go on
        log.exception("something failed that should not have")
        return None  # type: ignore[return-value]
