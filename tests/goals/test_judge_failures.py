"""Failures of the judge: the goal continues with growing delays, and pauses if verdicts can't be read."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, open_agent_session
from tests.goals.goal_fixture import DONE, NOT_YET, GoalModels, make_judge, open_goal_session

from talaria.goals.goal_manager import GoalDecision, GoalManager
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Answer, Fail, Say

UNREADABLE = "I would rather not say."


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


@pytest.fixture
def models(agent_session: AgentSession) -> GoalModels:
    return GoalModels(agent_session)


async def decisions(
    agent_session: AgentSession, models: GoalModels, clock: SettableClock, *answers: str | Answer
) -> list[GoalDecision]:
    """Judge a turn with each of these answers, each in a new goal manager."""
    found = []
    for answer in answers:
        models.add_verdicts(answer)
        manager = GoalManager(
            agent_session.session_id, store=agent_session.store, judge=make_judge(agent_session), clock=clock
        )
        found.append(await manager.evaluate_after_turn("I won."))
        clock.advance(timedelta(hours=1))
    return found


async def test_goal_pauses_after_three_unreadable_verdicts_in_a_row(
    agent_session: AgentSession, models: GoalModels
) -> None:
    clock = SettableClock()
    manager = GoalManager(agent_session.session_id, store=agent_session.store, clock=clock)
    await manager.set("Win")
    found = await decisions(agent_session, models, clock, UNREADABLE, UNREADABLE, UNREADABLE)
    assert [one.verdict for one in found] == ["continue"] * 3
    assert [one.should_continue for one in found] == [True, True, False]
    state = await manager.load()
    assert state is not None
    assert (state.status, state.turns_used) == ("paused", 3)
    assert state.paused_reason == "the judge's last 3 answers couldn't be read"
    resumed = await manager.resume()
    assert (resumed.unreadable, resumed.judge_failures) == (0, 0)


async def test_readable_verdict_resets_the_failure_count(agent_session: AgentSession, models: GoalModels) -> None:
    clock = SettableClock()
    manager = GoalManager(agent_session.session_id, store=agent_session.store, clock=clock)
    await manager.set("Win")
    found = await decisions(agent_session, models, clock, UNREADABLE, UNREADABLE, NOT_YET, UNREADABLE, UNREADABLE)
    assert all(one.should_continue for one in found)
    assert [one.wait_seconds for one in found] == [2, 4, 0, 2, 4]


async def test_unreachable_judge_delays_the_steps_until_the_budget_is_used_up(
    agent_session: AgentSession, models: GoalModels
) -> None:
    clock = SettableClock()
    manager = GoalManager(agent_session.session_id, default_max_turns=11, store=agent_session.store, clock=clock)
    await manager.set("Win")
    found = await decisions(agent_session, models, clock, *[Fail(400)] * 11)
    assert [one.should_continue for one in found] == [*[True] * 10, False]
    assert [one.wait_seconds for one in found] == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 0]
    assert found[-1].reason == "its budget of 11 turns is used up"


@pytest.mark.parametrize("answer", [Say(UNREADABLE), Fail(529)], ids=["unreadable", "overloaded"])
async def test_unjudged_turn_is_not_reported_as_not_reached(
    agent_session: AgentSession, models: GoalModels, answer: Answer
) -> None:
    models.add_verdicts(answer, *[answer] * 9 if isinstance(answer, Fail) else ())
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        notice = await goal_session.until_notice("couldn't be judged")
        state = await goal_session.state()
        assert state.parked is not None
        models.verdicts.clear()
        models.add_verdicts(DONE)
        await goal_session.until_notice("Goal reached")
        history = await goal_session.manager.history()
    assert notice.startswith("Goal (1 of 20 turns): The last turn couldn't be judged: the judge")
    assert notice.endswith("Continuing in 2 s.")
    users = [text for role, text in await agent_session.transcript_texts() if role == "user"]
    assert len(users) == 2
    assert "Whether it is reached is unknown. The last turn couldn't be judged" in users[1]
    for text in (notice, users[1]):
        assert "not reached" not in text
        assert "Overloaded" not in text
    assert [one.label for one in history] == ["not judged", "done"]
