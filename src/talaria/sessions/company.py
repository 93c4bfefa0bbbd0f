"""Do two things at once of which only one matters in the end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def accompanied(work: Coroutine[Any, Any, T], companion: Coroutine[Any, Any, None]) -> T:
    """Return what ``work`` returns, with ``companion`` running beside it and ending with it.

    If the companion fails, the work is cancelled and that error is raised, bare, as the work's own would be.
    """
    try:
        async with asyncio.TaskGroup() as group:
            beside = group.create_task(companion)
            result = await work
            beside.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return result


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what a group of tasks failed of in the first place."""
    error = errors.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error
