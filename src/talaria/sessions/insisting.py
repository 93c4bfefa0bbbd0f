"""Writes that wait for a store which refuses them: what they keep must not be lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from talaria.core.errors import StoreBusy, StoreError, StoreFull, StoreGone

T = TypeVar("T")
HELD_UP = "My store cannot be used at the moment. What you wrote waits, and is answered when it can."

# With these nothing was written for certain; a connection that broke may have got through with it.
REFUSALS: tuple[type[StoreError], ...] = (StoreBusy, StoreFull, StoreGone)
_PAUSE = 1.0
_PATIENCE = 5.0

log = logging.getLogger(__name__)


async def insist(write: Callable[[], Awaitable[T]], held_up: Callable[[], None] = lambda: None) -> T:
    """Return what ``write`` returns, again and again until the store takes it.

    ``held_up`` is called once if that takes a while. Raises what waiting does not mend, and what leaves in doubt
    whether something was written.
    """
    told = ""
    warning = asyncio.get_running_loop().call_later(_PATIENCE, held_up)
    try:
        while True:
            try:
                return await write()
            except REFUSALS as error:
                if told != str(error):
                    told = str(error)
                    log.warning("the store is waited for: %s", error)
                await asyncio.sleep(_PAUSE)
    finally:
        warning.cancel()
