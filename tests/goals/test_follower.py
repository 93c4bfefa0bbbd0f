"""Goal loop: turn, verdict, turn, until the goal or a limit is reached, or a person intervenes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, open_agent_session
from tests.goals.goal_fixture import DONE, NOT_YET, GoalModels, GoalSession, open_goal_session

from talaria.core.events import TextAdded, TurnAnswered
from talaria.goals.goal import read_goal_caps
from talaria.goals.transitions import Evidence
from talaria.runtime.turn_environment import StoredBudget
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Fail, Say, Tokens
from talaria.testing.wait import LIMIT, until


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


@pytest.fixture
def models(agent_session: AgentSession) -> GoalModels:
    return GoalModels(agent_session)


async def user_messages(agent_session: AgentSession) -> list[str]:
    return [text for role, text in await agent_session.transcript_texts() if role == "user"]


async def test_a_goal_that_is_reached_at_once_takes_one_turn(agent_session: AgentSession, models: GoalModels) -> None:
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win the game")
        assert await goal_session.until_notice("Goal reached") == "Goal reached (1 of 20 turns): It is shown."
        state = await goal_session.state()
    assert (state.status, state.turns_used) == ("done", 1)
    assert (len(models.worked), len(models.judged)) == (1, 1)
    assert await user_messages(agent_session) == ["Win the game"]


async def test_each_continuation_repeats_the_goal_verbatim_after_a_stable_prefix(
    agent_session: AgentSession, models: GoalModels
) -> None:
    models.add_verdicts(NOT_YET, NOT_YET, DONE)
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win the game,\nbut  fairly")
        await goal_session.until_notice("Goal reached")
        state = await goal_session.state()
        assert (
            await goal_session.until_notice("not reached yet", 2)
            == "Goal: not reached yet (2 of 20 turns): One part is missing."
        )
    assert state.turns_used == len(models.worked) == len(models.judged) == 3
    messages = await user_messages(agent_session)
    assert all("Win the game,\nbut  fairly" in text for text in messages)
    assert all("One part is missing." in text for text in messages[1:])
    for earlier, later in pairwise(models.worked):
        assert later.body.startswith(earlier.body.removesuffix(b"]}") + b",")


async def test_goal_pauses_at_its_turn_budget_and_resume_continues(
    agent_session: AgentSession, models: GoalModels
) -> None:
    models.add_verdicts(NOT_YET, NOT_YET, NOT_YET)
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win | budget: 2 turns")
        assert "2 turns" in await goal_session.until_notice("Goal paused")
        assert len(models.worked) == 2
        await goal_session.manager.resume()
        goal_session.begin()
        await goal_session.until_notice("Goal reached")
        state = await goal_session.state()
    assert (state.turns_used, len(models.worked)) == (2, 4)


async def test_usage_of_the_judge_counts_for_the_session(agent_session: AgentSession, models: GoalModels) -> None:
    models.add_replies(Say("step", usage=Tokens(input=10, output=1)))
    models.add_verdicts(Say(DONE, usage=Tokens(input=1_000, output=100)))
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win the game")
        await goal_session.until_notice("Goal reached")
    session = await agent_session.store.read(lambda tx: tx.sessions.get(agent_session.session_id))
    assert session is not None
    assert (session.usage.calls, session.usage.input_tokens, session.usage.output_tokens) == (2, 1_010, 101)


async def test_cost_budget_of_a_goal_ends_a_turn_and_pauses_the_goal(
    agent_session: AgentSession, models: GoalModels
) -> None:
    models.add_replies(Say("step", usage=Tokens(input=20_000, output=100)))
    models.add_verdicts(NOT_YET)
    budget = StoredBudget(agent_session.store, lambda tx: read_goal_caps(tx, agent_session.session_id))
    async with open_goal_session(agent_session, budget=budget) as goal_session:
        await goal_session.set("Win | budget: $0.1")
        assert "$0.10" in await goal_session.until_notice("Goal paused")


async def test_message_during_judgement_runs_first_and_its_turn_is_judged(
    agent_session: AgentSession, models: GoalModels
) -> None:
    slow = asyncio.Event()
    models.add_verdicts(slow, NOT_YET, DONE)
    models.add_replies("first step", Say("an answer for you", pause=0.2))
    async with open_goal_session(agent_session, seconds=60) as goal_session:
        await goal_session.set("Win the game")
        await models.until_judged()
        await goal_session.say("How is it going?", "1")
        await until(lambda: len(models.worked) == 2)
        slow.set()
        async with asyncio.timeout(LIMIT):
            assert await goal_session.runner.wait_until_idle() == TurnAnswered("an answer for you")
        await goal_session.until_notice("Goal reached")
        state = await goal_session.state()
        verdicts = await goal_session.manager.history()
    assert await user_messages(agent_session) == ["Win the game", "How is it going?"]
    assert "an answer for you" in models.judged[-1].question
    assert (state.turns_used, [one.verdict for one in verdicts]) == (1, ["done"])


async def test_message_runs_before_a_queued_goal_step(agent_session: AgentSession, models: GoalModels) -> None:
    models.add_verdicts(NOT_YET)
    async with open_goal_session(agent_session, lasting=False) as goal_session:
        await goal_session.set("Win the game")
        await goal_session.runner.wait_until_idle()
    async with open_goal_session(agent_session) as goal_session:
        assert await goal_session.follower.follow_up()
        models.add_replies("an answer for you")
        await goal_session.say("How is it going?", "1")
        await goal_session.until_notice("Goal reached")
    assert await user_messages(agent_session) == ["Win the game", "How is it going?"]


async def test_slow_judge_does_not_delay_other_messages(agent_session: AgentSession, models: GoalModels) -> None:
    never = asyncio.Event()
    models.add_verdicts(never)
    async with open_goal_session(agent_session, seconds=60) as goal_session:
        await goal_session.set("Win the game")
        await models.until_judged()
        async with asyncio.timeout(LIMIT):
            await goal_session.runner.wait_until_idle()
            assert [event.text for event in agent_session.events_of(TextAdded)] == ["step", " 1"]
            await goal_session.say("hello?", "1")
            assert await goal_session.runner.wait_until_idle() == TurnAnswered("step 2")


async def test_replaced_goal_takes_no_further_step(agent_session: AgentSession, models: GoalModels) -> None:
    slow = asyncio.Event()
    models.add_verdicts(slow, NOT_YET, NOT_YET)
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("the old goal")
        await models.until_judged()
        await goal_session.set("the new goal")
        slow.set()
        await goal_session.until_notice("Goal reached")
    messages = await user_messages(agent_session)
    assert [text for text in messages if "old" in text] == ["the old goal"]
    assert messages[1] == "the new goal"


async def test_stopping_a_turn_pauses_the_goal(agent_session: AgentSession, models: GoalModels) -> None:
    models.add_replies(Say("one two three four five six", pause=0.1))
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        await until(lambda: bool(agent_session.events_of(TextAdded)))
        assert goal_session.runner.stop()
        assert "you stopped the turn" in await goal_session.until_notice("Goal paused")
        assert (await goal_session.state()).status == "paused"
    assert models.judged == []


async def test_failed_turns_are_retried_with_delay_and_the_third_pauses_the_goal(
    agent_session: AgentSession, models: GoalModels
) -> None:
    clock = SettableClock(datetime.now(UTC))
    models.add_replies(*[Fail(401)] * 3)
    async with open_goal_session(agent_session, clock=clock) as goal_session:
        await goal_session.set("Win")
        assert "30 s" in await goal_session.until_notice("the turn failed")
        for waits, failures in ((30, 1), (120, 2)):
            parked = (await goal_session.state()).parked
            assert parked is not None
            assert parked.until == clock.now() + timedelta(seconds=waits)
            clock.advance(timedelta(seconds=waits))
            goal_session.runner.follow()
            await goal_session.until_notice(
                "the turn failed" if failures == 1 else "Goal paused", 2 if failures == 1 else 1
            )
        state = await goal_session.state()
        assert state.status == "paused"
        assert "3 turns in a row failed" in state.paused_reason
        assert [one.verdict for one in await goal_session.manager.history()] == ["failed"] * 3


async def test_successful_turn_resets_the_failure_count(agent_session: AgentSession, models: GoalModels) -> None:
    clock = SettableClock(datetime.now(UTC))
    models.add_replies(Fail(401), "back again")
    async with open_goal_session(agent_session, clock=clock) as goal_session:
        await goal_session.set("Win")
        await goal_session.until_notice("the turn failed")
        clock.advance(timedelta(seconds=30))
        goal_session.runner.follow()
        await goal_session.until_notice("Goal reached")
        state = await goal_session.state()
    assert (state.failures, state.turns_used) == (0, 2)


async def test_pause_and_pending_judgement_survive_the_end_of_the_program(
    agent_session: AgentSession, models: GoalModels
) -> None:
    never = asyncio.Event()
    models.add_verdicts(never)
    async with open_goal_session(agent_session, seconds=60) as goal_session:
        await goal_session.set("Win")
        await models.until_judged()
    models.add_verdicts(NOT_YET, NOT_YET)
    async with open_goal_session(agent_session) as goal_session:
        goal_session.begin()
        await goal_session.until_notice("not reached yet")
        await goal_session.manager.pause("lunch")
    async with open_goal_session(agent_session) as goal_session:
        assert await goal_session.manager.load() is not None
        assert "lunch" in goal_session.manager.status_line()
        before = len(models.worked)
        goal_session.begin()
        await goal_session.runner.wait_until_idle()
        await goal_session.manager.resume()
        goal_session.begin()
        await goal_session.until_notice("Goal reached")
        assert len(models.worked) >= before + 1


async def test_goal_stays_open_until_its_verify_command_succeeds(
    agent_session: AgentSession, models: GoalModels
) -> None:
    class Flag:
        async def __call__(self, command: str, *, vouched: bool) -> Evidence:
            return Evidence(0 if len(models.worked) == 3 else 1, f"{len(models.worked)} of 3")

    async with open_goal_session(agent_session, verify=Flag()) as goal_session:
        await goal_session.set("Win\nverify: make test")
        await goal_session.until_notice("Goal reached")
        verdicts = await goal_session.manager.history()
    assert [(one.verdict, one.exit_code) for one in verdicts] == [("continue", 1), ("continue", 1), ("done", 0)]
    assert "1 of 3" in (await user_messages(agent_session))[1]


async def test_criterion_added_during_judgement_is_judged_too(agent_session: AgentSession, models: GoalModels) -> None:
    slow = asyncio.Event()
    models.add_verdicts(slow, DONE, NOT_YET, DONE)
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        await models.until_judged()
        await goal_session.manager.add_subgoal("with grace")
        slow.set()
        await goal_session.until_notice("Goal reached")
    assert "with grace" in models.judged[1].question
    assert "with grace" in (await user_messages(agent_session))[1]


async def test_stop_condition_pauses_the_goal(agent_session: AgentSession, models: GoalModels) -> None:
    models.add_verdicts('{"verdict": "stop", "reason": "An API key is required."}')
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win | stop when: a key is needed")
        await goal_session.until_notice("Goal paused")
        assert (await goal_session.state()).paused_reason == "An API key is required"


async def test_short_lived_program_leaves_the_judgement_to_a_lasting_one(
    agent_session: AgentSession, models: GoalModels
) -> None:
    async with open_goal_session(agent_session, lasting=False) as goal_session:
        await goal_session.set("Win")
        await goal_session.runner.wait_until_idle()
        assert not goal_session.runner.has_running_work
        assert (await goal_session.state()).pending is not None
    assert models.judged == []
    async with open_goal_session(agent_session) as goal_session:
        goal_session.begin()
        await goal_session.until_notice("Goal reached")


async def test_turn_run_by_another_program_during_judgement_is_judged(
    agent_session: AgentSession, models: GoalModels
) -> None:
    slow = asyncio.Event()
    models.add_verdicts(slow, NOT_YET, DONE)
    models.add_replies("first step", Say("an answer over there", pause=0.2))
    async with (
        open_goal_session(agent_session, seconds=60) as here,
        open_goal_session(agent_session, lasting=False) as there,
    ):
        await here.set("Win the game")
        await models.until_judged()
        await there.say("How is it going?", "1")
        await until(lambda: len(models.worked) == 2)
        slow.set()
        await here.until_notice("Goal reached")
    assert "an answer over there" in models.judged[-1].question


async def test_pause_during_judgement_is_preserved(agent_session: AgentSession, models: GoalModels) -> None:
    slow = asyncio.Event()
    models.add_verdicts(slow, NOT_YET)
    async with open_goal_session(agent_session) as goal_session:
        await goal_session.set("Win")
        await models.until_judged()
        await goal_session.manager.pause()
        slow.set()
        assert not await _follow_up(goal_session)
        state = await goal_session.state()
    assert (state.status, state.turns_used, len(models.worked)) == ("paused", 0, 1)


async def _follow_up(goal_session: GoalSession) -> bool:
    async with asyncio.timeout(LIMIT):
        return await goal_session.follower.follow_up()
