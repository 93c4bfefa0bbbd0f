"""Interrupted runs resume: the script runs at most once, and the report is sent exactly once."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import structs
from tests.schedule.schedule_fixture import HOME, ScheduleFixture, open_schedule
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Store, Subscription, Transaction
from talaria.core.errors import StoreUnavailable
from talaria.schedule.run_executor import LEASE
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Ask, ModelServer, Received, Say

T = TypeVar("T")


class KilledStore:
    """The store of a worker that is killed at one of its calls: before the operation, or after it.

    From then on the worker writes nothing more, not even to clean up.
    """

    def __init__(self, store: Store, at: int, *, when_done: bool) -> None:
        self._store = store
        self._left = at
        self._when_done = when_done
        self.killed = asyncio.Event()

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._guarded(partial(self._store.read, work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._guarded(partial(self._store.write, work))

    async def close(self) -> None:
        """Leave the store to its owner."""

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        return self._store.subscribe(*topics)

    async def _guarded(self, proposed_action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._left -= 1
        if self._left < 0:
            raise StoreUnavailable("the worker is dead")
        if self._left or self._when_done:
            result = await proposed_action()
            if self._left:
                return result
        self.killed.set()
        await asyncio.sleep(0)
        raise StoreUnavailable("the worker is dead")


def think(received: Received) -> Say:
    """Call a tool first, then answer."""
    if received.json["messages"][-1]["role"] == "user":
        return Say(calls=[Ask("list_files", {})])
    return Say("It rains.")


async def run_until_killed(schedule: ScheduleFixture, at: int, *, when_done: bool) -> bool:
    """Run jobs until the worker is killed; return ``False`` if all were done before."""
    store = KilledStore(schedule.application.store, at, when_done=when_done)
    killed_office = ScheduleFixture(
        structs.replace(schedule.application, store=store), schedule.folder, schedule.clock, schedule.jobs
    )
    killed_office.scripts = schedule.scripts
    ticker = killed_office.make_scheduler()
    try:
        await ticker.run_pending_turns()
    except StoreUnavailable:
        assert store.killed.is_set()
    await ticker.close(patience=0)
    return store.killed.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("when_done", [False, True])
async def test_a_run_killed_at_any_step_is_reported_exactly_once(
    tmp_path: Path, sqlite_location: StoreLocation, server: ModelServer, clock: SettableClock, *, when_done: bool
) -> None:
    server.answering(think)
    async with open_schedule(tmp_path, sqlite_location, server, clock) as schedule:
        await schedule.application.store.write(lambda tx: write_home(tx, HomeChat(HOME)))
        at, was_killed = 0, True
        while was_killed:
            at += 1
            schedule.scripts.clear()
            job = await schedule.add("30m", script=f"echo {at}", name=f"Job {at}")
            clock.advance(timedelta(minutes=30))
            was_killed = await run_until_killed(schedule, at, when_done=when_done)
            clock.advance(2 * LEASE)
            await schedule.make_scheduler().run_pending_turns()
            states = [(run.state, run.output) for run in await schedule.runs(job)]
            reports = [text for _, text in await schedule.posted()]
            assert states == [("done", "It rains.")], at
            assert len(schedule.scripts) <= 1, at
            assert reports.count("It rains.") == at, (at, reports[-2:])
    assert at > 10
