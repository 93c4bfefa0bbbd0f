"""Supervised task group: a failed task doesn't end the others, and a stuck one doesn't block shutdown."""

import asyncio
import gc
import logging
import warnings

import pytest

from talaria.core.aio import SupervisedTaskGroup, shield_until_done
from talaria.core.errors import Refused, StoreError
from talaria.testing.wait import LIMIT


async def test_failed_task_does_not_cancel_other_tasks() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise Refused("no")

    async def continues() -> None:
        await asyncio.sleep(0)
        ended.append("other")

    async with SupervisedTaskGroup() as jobs:
        jobs.create_task(fails())
        jobs.create_task(continues())
    assert ended == ["other"]


async def test_task_that_exceeds_the_patience_is_cancelled_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def never_ends() -> None:
        await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(LIMIT), SupervisedTaskGroup(patience=0.01) as jobs:
            jobs.create_task(never_ends())
    assert "never_ends did not finish in time" in caplog.text


async def test_task_cancelled_before_start_raises_no_warning() -> None:
    async def never() -> None:
        raise AssertionError("it has begun")

    with warnings.catch_warnings(record=True) as complaints:
        async with SupervisedTaskGroup() as jobs:
            jobs.create_task(never()).cancel()
        gc.collect()
    assert complaints == []


async def test_cancelled_claim_ends_its_task_even_if_undo_fails(caplog: pytest.LogCaptureFixture) -> None:
    finished = asyncio.Event()

    async def claim() -> str:
        await finished.wait()
        return "claimed"

    async def release(_: str) -> None:
        raise StoreError("The store is closed.")

    claiming = asyncio.ensure_future(shield_until_done(claim(), undo=release))
    await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.sleep(0)
    finished.set()
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await claiming
    assert "not undone: The store is closed." in caplog.text
