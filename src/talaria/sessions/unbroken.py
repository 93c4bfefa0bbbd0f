"""Work that is carried out whole, whoever stops waiting for it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unbroken(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]] | None = None) -> T:
    """Return what ``work`` returns; if cancelled meanwhile, be so only when it has ended and ``undo`` was run on it."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if working.exception() is None and undo is not None:
            await undo(working.result())
        raise
