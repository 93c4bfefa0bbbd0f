"""Waits end by themselves: when their time has come, or their process is over."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.agent.agent_fixture import Workshop, workshop
from tests.goals.goal_fixture import NOT_YET, Court, pursue

from talaria.contracts.clock import SystemClock
from talaria.core.ids import new_turn_id
from talaria.goals.goal import Opinion, Waiting, WatchedProcess, identify_process, resolve_process, wait_until_over
from talaria.goals.goal_store import withdraw_steps
from talaria.testing.clock import SettableClock
from talaria.testing.wait import LIMIT

NEVER = "import signal; signal.pause()"


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


@pytest.fixture
def court(shop: Workshop) -> Court:
    return Court(shop)


@asynccontextmanager
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", NEVER)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


def parked(process: WatchedProcess | None, seconds: float = 60) -> Waiting:
    return Waiting(new_turn_id(), datetime.now(UTC) + timedelta(seconds=seconds), "the build", process)


async def test_a_wait_for_a_time_ends_by_itself_with_nobody_typing(shop: Workshop, court: Court) -> None:
    court.rules('{"verdict": "wait", "reason": "The build runs.", "wait_seconds": 1}')
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        assert "waiting for 1 s" in await pursuit.told("Goal: waiting")
        assert (await pursuit.state()).parked is not None
        await pursuit.told("Goal reached")
    users = [text for role, text in await shop.told() if role == "user"]
    assert len(users) == 2
    assert "the wait is over (The build runs)" in users[1]


async def test_a_wait_for_a_process_ends_with_it(shop: Workshop, court: Court) -> None:
    async with process() as build, pursue(shop) as pursuit:
        court.rules(f'{{"verdict": "wait", "reason": "It builds.", "wait_pid": {build.pid}}}')
        await pursuit.set("Win")
        assert f"process {build.pid}" in await pursuit.told("Goal: waiting")
        assert len(court.worked) == 1
        build.kill()
        await pursuit.told("Goal reached")
        assert len(court.worked) == 2


async def test_a_wait_outlives_the_program(shop: Workshop, court: Court) -> None:
    clock = SettableClock(datetime.now(UTC))
    court.rules('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 3600}')
    async with pursue(shop, clock=clock) as pursuit:
        await pursuit.set("Win")
        await pursuit.told("Goal: waiting")
    clock.advance(timedelta(hours=1))
    async with pursue(shop, clock=clock) as pursuit:
        pursuit.begin()
        await pursuit.told("Goal reached")
    assert len(court.worked) == 2


async def test_a_person_who_writes_during_a_wait_is_answered_and_that_turn_is_judged(
    shop: Workshop, court: Court
) -> None:
    court.rules('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 3600}')
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        await pursuit.told("Goal: waiting")
        await pursuit.say("It is done already.", "1")
        await pursuit.told("Goal reached")
        assert (await pursuit.state()).parked is None


async def test_resume_ends_a_wait(shop: Workshop, court: Court) -> None:
    court.rules('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 3600}')
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        await pursuit.told("Goal: waiting")
        await pursuit.manager.resume()
        pursuit.begin()
        await pursuit.told("Goal reached")


async def test_the_time_of_a_goal_runs_while_it_waits(shop: Workshop, court: Court) -> None:
    clock = SettableClock(datetime.now(UTC))
    court.rules('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 7200}')
    async with pursue(shop, clock=clock) as pursuit:
        await pursuit.set("Win | budget: 1h")
        await pursuit.told("Goal: waiting")
        clock.advance(timedelta(hours=2))
        pursuit.talk.follow()
        assert "1 h" in await pursuit.told("Goal paused")
    assert len(court.worked) == 1


async def test_a_goal_that_was_left_without_a_next_step_continues_after_the_last_turn(
    shop: Workshop, court: Court
) -> None:
    async with pursue(shop) as pursuit:
        await pursuit.manager.set("Win")
        await shop.run_pending_turns()  # by a program that knows nothing of goals
        court.rules(NOT_YET)
        pursuit.begin()
        await pursuit.told("Goal reached")
        assert (await pursuit.state()).turns_used == 2


async def test_a_goal_where_no_turn_was_ever_taken_waits_for_the_first(shop: Workshop, court: Court) -> None:
    async with pursue(shop) as pursuit:
        await pursuit.manager.set("Win")
        await shop.store.write(lambda tx: withdraw_steps(tx, shop.session_id))
        assert not await pursuit.follower.follow_up()
        await pursuit.say("Begin, please.", "1")
        await pursuit.told("Goal reached")


async def test_another_process_with_the_same_number_is_not_waited_for() -> None:
    async with process() as running:
        watched = identify_process(running.pid)
        assert watched is not None
        async with asyncio.timeout(LIMIT):
            await wait_until_over(parked(structs.replace(watched, started="1")), SystemClock())
            await wait_until_over(parked(structs.replace(watched, machine="elsewhere")), SystemClock())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await wait_until_over(parked(watched), SystemClock())
        running.kill()
        async with asyncio.timeout(LIMIT):
            await wait_until_over(parked(watched), SystemClock())


async def test_a_process_is_waited_for_no_longer_than_said() -> None:
    async with process() as running:
        async with asyncio.timeout(LIMIT):
            await wait_until_over(parked(identify_process(running.pid), seconds=0.05), SystemClock())
        assert running.returncode is None


async def test_a_process_that_is_gone_already_need_not_be_waited_for() -> None:
    async with process() as running:
        pass
    gone = Opinion(verdict="wait", reason="r", wait_seconds=60, wait_pid=running.pid)
    assert resolve_process(gone) == (structs.replace(gone, wait_seconds=0), None)
    assert identify_process(0) is None
    assert identify_process(2**31) is None
    assert identify_process(os.getpid()) is not None
