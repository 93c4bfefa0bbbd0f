"""Waiting for a condition: with pauses, with notifications of a store, and until the limit."""

import asyncio
from collections import deque
from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation

from talaria.testing.clock import SettableClock
from talaria.testing.wait import until


async def test_first_true_value_is_returned() -> None:
    values = deque(["", "", "found"])
    assert await until(values.popleft) == "found"


async def test_condition_may_be_a_coroutine_function() -> None:
    values = deque([0, 3])

    async def next_value() -> int:
        return values.popleft()

    assert await until(next_value) == 3


async def test_notification_of_a_store_leads_to_another_check(tmp_path: Path) -> None:
    store = StoreLocation("sqlite", str(tmp_path / "talaria.db")).open_store(SettableClock(), poll_seconds=3600)
    checks: list[int] = []

    def is_notified() -> bool:
        checks.append(len(checks))
        return len(checks) > 2

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(until(is_notified, subscribe=store.subscribe("news")))
        while not waiting.done():
            await store.write(lambda tx: tx.notify("news"))
    assert checks == [0, 1, 2]
    await store.close()


async def test_time_out_shows_the_last_value() -> None:
    with pytest.raises(TimeoutError, match=r"^the condition is still \[\] after 0\.05 s$"):
        await until(list, within=0.05)


async def test_error_of_the_condition_is_raised() -> None:
    def fail() -> bool:
        raise LookupError("no such chat")

    with pytest.raises(LookupError):
        await until(fail)
