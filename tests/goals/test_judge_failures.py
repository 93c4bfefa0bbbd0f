"""Failures of the judge: the goal continues with growing delays, and pauses if verdicts can't be read."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.agent.agent_fixture import Workshop, workshop
from tests.goals.goal_fixture import DONE, NOT_YET, Court, judge_of, pursue

from talaria.goals.goal_manager import GoalDecision, GoalManager
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Answer, Fail, Say

UNREADABLE = "I would rather not say."


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


@pytest.fixture
def court(shop: Workshop) -> Court:
    return Court(shop)


async def decisions(shop: Workshop, court: Court, clock: SettableClock, *answers: str | Answer) -> list[GoalDecision]:
    """Judge a turn with each of these answers, each in a new goal manager."""
    found = []
    for answer in answers:
        court.rules(answer)
        manager = GoalManager(shop.session_id, store=shop.store, judge=judge_of(shop), clock=clock)
        found.append(await manager.evaluate_after_turn("I won."))
        clock.advance(timedelta(hours=1))
    return found


async def test_goal_pauses_after_three_unreadable_verdicts_in_a_row(shop: Workshop, court: Court) -> None:
    clock = SettableClock()
    manager = GoalManager(shop.session_id, store=shop.store, clock=clock)
    await manager.set("Win")
    found = await decisions(shop, court, clock, UNREADABLE, UNREADABLE, UNREADABLE)
    assert [one.verdict for one in found] == ["continue"] * 3
    assert [one.should_continue for one in found] == [True, True, False]
    state = await manager.load()
    assert state is not None
    assert (state.status, state.turns_used) == ("paused", 3)
    assert state.paused_reason == "the judge's last 3 answers couldn't be read"
    resumed = await manager.resume()
    assert (resumed.unreadable, resumed.judge_failures) == (0, 0)


async def test_readable_verdict_resets_the_failure_count(shop: Workshop, court: Court) -> None:
    clock = SettableClock()
    manager = GoalManager(shop.session_id, store=shop.store, clock=clock)
    await manager.set("Win")
    found = await decisions(shop, court, clock, UNREADABLE, UNREADABLE, NOT_YET, UNREADABLE, UNREADABLE)
    assert all(one.should_continue for one in found)
    assert [one.wait_seconds for one in found] == [2, 4, 0, 2, 4]


async def test_unreachable_judge_delays_the_steps_until_the_budget_is_used_up(shop: Workshop, court: Court) -> None:
    clock = SettableClock()
    manager = GoalManager(shop.session_id, default_max_turns=11, store=shop.store, clock=clock)
    await manager.set("Win")
    found = await decisions(shop, court, clock, *[Fail(400)] * 11)
    assert [one.should_continue for one in found] == [*[True] * 10, False]
    assert [one.wait_seconds for one in found] == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 0]
    assert found[-1].reason == "its budget of 11 turns is used up"


@pytest.mark.parametrize("answer", [Say(UNREADABLE), Fail(529)], ids=["unreadable", "overloaded"])
async def test_unjudged_turn_is_not_reported_as_not_reached(shop: Workshop, court: Court, answer: Answer) -> None:
    court.rules(answer, *[answer] * 9 if isinstance(answer, Fail) else ())
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        notice = await pursuit.until_notice("couldn't be judged")
        state = await pursuit.state()
        assert state.parked is not None
        court.verdicts.clear()
        court.rules(DONE)
        await pursuit.until_notice("Goal reached")
        history = await pursuit.manager.history()
    assert notice.startswith("Goal (1 of 20 turns): The last turn couldn't be judged: the judge")
    assert notice.endswith("Continuing in 2 s.")
    users = [text for role, text in await shop.told() if role == "user"]
    assert len(users) == 2
    assert "Whether it is reached is unknown. The last turn couldn't be judged" in users[1]
    for text in (notice, users[1]):
        assert "not reached" not in text
        assert "Overloaded" not in text
    assert [one.label for one in history] == ["not judged", "done"]
