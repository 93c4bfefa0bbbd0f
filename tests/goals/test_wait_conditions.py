"""Waits of goals end at their time or with their process."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.agent.agent_fixture import AgentSession, open_agent_session
from tests.goals.goal_fixture import NOT_YET, GoalModels, open_goal_session

from talaria.contracts.clock import SystemClock
from talaria.core.ids import new_turn_id
from talaria.goals.goal import Opinion, Waiting, WatchedProcess, identify_process, resolve_process, wait_until_over
from talaria.goals.goal_store import withdraw_steps
from talaria.testing.clock import SettableClock
from talaria.testing.wait import LIMIT

NEVER = "import signal; signal.pause()"


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


@pytest.fixture
def models(agent_session: AgentSession) -> GoalModels:
    return GoalModels(agent_session)


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


async def test_wait_for_a_time_ends_without_a_message(agent_session: AgentSession, models: GoalModels) -> None:
    models.add_verdicts('{"verdict": "wait", "reason": "The build runs.", "wait_seconds": 1}')
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        assert "waiting for 1 s" in await goal_session.until_notice("Goal: waiting")
        assert (await goal_session.state()).parked is not None
        await goal_session.until_notice("Goal reached")
    users = [text for role, text in await agent_session.transcript_texts() if role == "user"]
    assert len(users) == 2
    assert "the wait is over (The build runs)" in users[1]


async def test_wait_for_a_process_ends_with_the_process(agent_session: AgentSession, models: GoalModels) -> None:
    async with process() as build, open_goal_session(agent_session) as goal_session:
        models.add_verdicts(f'{{"verdict": "wait", "reason": "It builds.", "wait_pid": {build.pid}}}')
        await goal_session.set("Win")
        assert f"process {build.pid}" in await goal_session.until_notice("Goal: waiting")
        assert len(models.worked) == 1
        build.kill()
        await goal_session.until_notice("Goal reached")
        assert len(models.worked) == 2


async def test_wait_survives_the_end_of_the_program(agent_session: AgentSession, models: GoalModels) -> None:
    clock = SettableClock(datetime.now(UTC))
    models.add_verdicts('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 3600}')
    async with open_goal_session(agent_session, clock=clock) as goal_session:
        await goal_session.set("Win")
        await goal_session.until_notice("Goal: waiting")
    clock.advance(timedelta(hours=1))
    async with open_goal_session(agent_session, clock=clock) as goal_session:
        goal_session.begin()
        await goal_session.until_notice("Goal reached")
    assert len(models.worked) == 2


async def test_message_during_a_wait_is_answered_and_its_turn_is_judged(
    agent_session: AgentSession, models: GoalModels
) -> None:
    models.add_verdicts('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 3600}')
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        await goal_session.until_notice("Goal: waiting")
        await goal_session.say("It is done already.", "1")
        await goal_session.until_notice("Goal reached")
        assert (await goal_session.state()).parked is None


async def test_resume_ends_a_wait(agent_session: AgentSession, models: GoalModels) -> None:
    models.add_verdicts('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 3600}')
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        await goal_session.until_notice("Goal: waiting")
        await goal_session.manager.resume()
        goal_session.begin()
        await goal_session.until_notice("Goal reached")


async def test_waiting_counts_towards_the_time_budget(agent_session: AgentSession, models: GoalModels) -> None:
    clock = SettableClock(datetime.now(UTC))
    models.add_verdicts('{"verdict": "wait", "reason": "Tomorrow.", "wait_seconds": 7200}')
    async with open_goal_session(agent_session, clock=clock) as goal_session:
        await goal_session.set("Win | budget: 1h")
        await goal_session.until_notice("Goal: waiting")
        clock.advance(timedelta(hours=2))
        goal_session.runner.follow()
        assert "1 h" in await goal_session.until_notice("Goal paused")
    assert len(models.worked) == 1


async def test_goal_without_a_queued_step_continues_after_the_last_turn(
    agent_session: AgentSession, models: GoalModels
) -> None:
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.manager.set("Win")
        await agent_session.run_pending_turns()  # by a program without a goal follower
        models.add_verdicts(NOT_YET)
        goal_session.begin()
        await goal_session.until_notice("Goal reached")
        assert (await goal_session.state()).turns_used == 2


async def test_goal_without_any_turn_waits_for_the_first_message(
    agent_session: AgentSession, models: GoalModels
) -> None:
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.manager.set("Win")
        await agent_session.store.write(lambda tx: withdraw_steps(tx, agent_session.session_id))
        assert not await goal_session.follower.follow_up()
        await goal_session.say("Begin, please.", "1")
        await goal_session.until_notice("Goal reached")


async def test_wait_ignores_another_process_with_the_same_pid() -> None:
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


async def test_wait_for_a_process_ends_at_its_time_limit() -> None:
    async with process() as running:
        async with asyncio.timeout(LIMIT):
            await wait_until_over(parked(identify_process(running.pid), seconds=0.05), SystemClock())
        assert running.returncode is None


async def test_wait_for_an_ended_process_takes_no_time() -> None:
    async with process() as running:
        pass
    gone = Opinion(verdict="wait", reason="r", wait_seconds=60, wait_pid=running.pid)
    assert resolve_process(gone) == (structs.replace(gone, wait_seconds=0), None)
    assert identify_process(0) is None
    assert identify_process(2**31) is None
    assert identify_process(os.getpid()) is not None
