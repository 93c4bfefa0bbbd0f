"""Wait for a condition, never for a duration."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar, overload

from talaria.contracts.store import Subscription

LIMIT = 60.0  # seconds; a wait that takes longer is a defect, however busy the machine is
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02

T = TypeVar("T")
_Subscribing = AbstractAsyncContextManager[Subscription]


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]], *, subscribe: _Subscribing | None = None, within: float = LIMIT
) -> T: ...
@overload
async def until(
    condition: Callable[[], T | None], *, subscribe: _Subscribing | None = None, within: float = LIMIT
) -> T: ...
async def until(
    condition: Callable[[], object], *, subscribe: _Subscribing | None = None, within: float = LIMIT
) -> object:
    """Return the first true value of a condition, which may be a coroutine function.

    With ``subscribe=store.subscribe(topic)`` the condition is checked at each notification of the store, otherwise
    after short pauses. Raise `TimeoutError` with the condition's last value after ``within`` seconds.
    """
    last: object = None
    pause = _FIRST_PAUSE
    try:
        async with asyncio.timeout(within), subscribe or nullcontext() as changes:
            while True:
                value = condition()
                last = await value if inspect.isawaitable(value) else value
                if last:
                    return last
                if changes is not None:
                    await changes.wait()
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_PAUSE)
    except TimeoutError:
        raise TimeoutError(f"the condition is still {last!r} after {within:g} s") from None
