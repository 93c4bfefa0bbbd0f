"""Writes that are retried until the store takes them: what they store must not be lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from talaria.core.errors import StoreBusy, StoreError, StoreFull, StoreGone
from talaria.sessions.loop_timer import LoopTimer

T = TypeVar("T")
HELD_UP = "I can't reach my database right now. I'll answer as soon as it's back."

# With these nothing was written for certain; a connection that broke may have got through with it.
REFUSALS: tuple[type[StoreError], ...] = (StoreBusy, StoreFull, StoreGone)
_PAUSE = 1.0
_PATIENCE = 5.0

log = logging.getLogger(__name__)


async def insist(
    write: Callable[[], Awaitable[T]], held_up: Callable[[], None] = lambda: None, *, patience: float = _PATIENCE
) -> T:
    """Return what ``write`` returns, retried until the store takes it.

    ``held_up`` is called once if that takes longer than ``patience`` seconds. Raises what waiting does not fix, and
    what leaves in doubt whether something was written.
    """
    told = ""
    warning = LoopTimer(patience, held_up)
    try:
        while True:
            try:
                return await write()
            except REFUSALS as error:
                if told != str(error):
                    told = str(error)
                    log.warning("waiting for the store: %s", error)
                await asyncio.sleep(_PAUSE)
    finally:
        warning.cancel()
