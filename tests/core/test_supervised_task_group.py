"""Tasks of many conversations in one group: none takes the others down, and none keeps the gateway from ending."""

import asyncio
import gc
import logging
import warnings

import pytest

from talaria.core.aio import SupervisedTaskGroup, shield_until_done
from talaria.core.errors import Refused, StoreError
from talaria.testing.wait import LIMIT


async def test_a_failure_ends_the_task_that_has_it_alone() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise Refused("no")

    async def goes_on() -> None:
        await asyncio.sleep(0)
        ended.append("other")

    async with SupervisedTaskGroup() as jobs:
        jobs.create_task(fails())
        jobs.create_task(goes_on())
    assert ended == ["other"]


async def test_what_does_not_come_to_its_end_is_cut_off_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def never_ends() -> None:
        await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(LIMIT), SupervisedTaskGroup(patience=0.01) as jobs:
            jobs.create_task(never_ends())
    assert "never_ends did not finish in time" in caplog.text


async def test_what_is_cancelled_before_it_has_begun_leaves_nothing_behind() -> None:
    async def never() -> None:
        raise AssertionError("it has begun")

    with warnings.catch_warnings(record=True) as complaints:
        async with SupervisedTaskGroup() as jobs:
            jobs.create_task(never()).cancel()
        gc.collect()
    assert complaints == []


async def test_cancelled_claim_ends_its_task_even_if_it_cannot_be_undone(caplog: pytest.LogCaptureFixture) -> None:
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
