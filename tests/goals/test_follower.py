"""Goal loop: turn, verdict, turn, until the goal or a limit is reached, or a person intervenes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.agent.agent_fixture import Workshop, workshop
from tests.goals.goal_fixture import DONE, NOT_YET, Court, Pursuit, pursue

from talaria.core.events import TextAdded, TurnAnswered
from talaria.goals.goal import goal_caps
from talaria.goals.transitions import Evidence
from talaria.runtime.turn_environment import StoredBudget
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Fail, Say, Tokens
from talaria.testing.wait import LIMIT, until


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


@pytest.fixture
def court(shop: Workshop) -> Court:
    return Court(shop)


async def user_messages(shop: Workshop) -> list[str]:
    return [text for role, text in await shop.told() if role == "user"]


async def test_a_goal_that_is_reached_at_once_takes_one_turn(shop: Workshop, court: Court) -> None:
    async with pursue(shop) as pursuit:
        await pursuit.set("Win the game")
        assert await pursuit.until_notice("Goal reached") == "Goal reached (1 of 20 turns): It is shown."
        state = await pursuit.state()
    assert (state.status, state.turns_used) == ("done", 1)
    assert (len(court.worked), len(court.judged)) == (1, 1)
    assert await user_messages(shop) == ["Win the game"]


async def test_each_continuation_repeats_the_goal_verbatim_after_a_stable_prefix(shop: Workshop, court: Court) -> None:
    court.rules(NOT_YET, NOT_YET, DONE)
    async with pursue(shop) as pursuit:
        await pursuit.set("Win the game,\nbut  fairly")
        await pursuit.until_notice("Goal reached")
        state = await pursuit.state()
        assert (
            await pursuit.until_notice("not reached yet", 2)
            == "Goal: not reached yet (2 of 20 turns): One part is missing."
        )
    assert state.turns_used == len(court.worked) == len(court.judged) == 3
    messages = await user_messages(shop)
    assert all("Win the game,\nbut  fairly" in text for text in messages)
    assert all("One part is missing." in text for text in messages[1:])
    for earlier, later in pairwise(court.worked):
        assert later.body.startswith(earlier.body.removesuffix(b"]}") + b",")


async def test_goal_pauses_at_its_turn_budget_and_resume_continues(shop: Workshop, court: Court) -> None:
    court.rules(NOT_YET, NOT_YET, NOT_YET)
    async with pursue(shop) as pursuit:
        await pursuit.set("Win | budget: 2 turns")
        assert "2 turns" in await pursuit.until_notice("Goal paused")
        assert len(court.worked) == 2
        await pursuit.manager.resume()
        pursuit.begin()
        await pursuit.until_notice("Goal reached")
        state = await pursuit.state()
    assert (state.turns_used, len(court.worked)) == (2, 4)


async def test_usage_of_the_judge_counts_for_the_session(shop: Workshop, court: Court) -> None:
    court.says(Say("step", usage=Tokens(input=10, output=1)))
    court.rules(Say(DONE, usage=Tokens(input=1_000, output=100)))
    async with pursue(shop) as pursuit:
        await pursuit.set("Win the game")
        await pursuit.until_notice("Goal reached")
    session = await shop.store.read(lambda tx: tx.sessions.get(shop.session_id))
    assert session is not None
    assert (session.usage.calls, session.usage.input_tokens, session.usage.output_tokens) == (2, 1_010, 101)


async def test_cost_budget_of_a_goal_ends_a_turn_and_pauses_the_goal(shop: Workshop, court: Court) -> None:
    court.says(Say("step", usage=Tokens(input=20_000, output=100)))
    court.rules(NOT_YET)
    budget = StoredBudget(shop.store, lambda tx: goal_caps(tx, shop.session_id))
    async with pursue(shop, budget=budget) as pursuit:
        await pursuit.set("Win | budget: $0.1")
        assert "$0.10" in await pursuit.until_notice("Goal paused")


async def test_message_during_judgement_runs_first_and_its_turn_is_judged(shop: Workshop, court: Court) -> None:
    slow = asyncio.Event()
    court.rules(slow, NOT_YET, DONE)
    court.says("first step", Say("an answer for you", pause=0.2))
    async with pursue(shop, seconds=60) as pursuit:
        await pursuit.set("Win the game")
        await court.until_judged()
        await pursuit.say("How is it going?", "1")
        await until(lambda: len(court.worked) == 2)
        slow.set()
        async with asyncio.timeout(LIMIT):
            assert await pursuit.talk.settled() == TurnAnswered("an answer for you")
        await pursuit.until_notice("Goal reached")
        state = await pursuit.state()
        verdicts = await pursuit.manager.history()
    assert await user_messages(shop) == ["Win the game", "How is it going?"]
    assert "an answer for you" in court.judged[-1].question
    assert (state.turns_used, [one.verdict for one in verdicts]) == (1, ["done"])


async def test_message_runs_before_a_queued_goal_step(shop: Workshop, court: Court) -> None:
    court.rules(NOT_YET)
    async with pursue(shop, lasting=False) as pursuit:
        await pursuit.set("Win the game")
        await pursuit.talk.settled()
    async with pursue(shop) as pursuit:
        assert await pursuit.follower.follow_up()
        court.says("an answer for you")
        await pursuit.say("How is it going?", "1")
        await pursuit.until_notice("Goal reached")
    assert await user_messages(shop) == ["Win the game", "How is it going?"]


async def test_slow_judge_does_not_delay_other_messages(shop: Workshop, court: Court) -> None:
    never = asyncio.Event()
    court.rules(never)
    async with pursue(shop, seconds=60) as pursuit:
        await pursuit.set("Win the game")
        await court.until_judged()
        async with asyncio.timeout(LIMIT):
            await pursuit.talk.settled()
            assert [event.text for event in shop.heard(TextAdded)] == ["step", " 1"]
            await pursuit.say("hello?", "1")
            assert await pursuit.talk.settled() == TurnAnswered("step 2")


async def test_replaced_goal_takes_no_further_step(shop: Workshop, court: Court) -> None:
    slow = asyncio.Event()
    court.rules(slow, NOT_YET, NOT_YET)
    async with pursue(shop) as pursuit:
        await pursuit.set("the old goal")
        await court.until_judged()
        await pursuit.set("the new goal")
        slow.set()
        await pursuit.until_notice("Goal reached")
    messages = await user_messages(shop)
    assert [text for text in messages if "old" in text] == ["the old goal"]
    assert messages[1] == "the new goal"


async def test_stopping_a_turn_pauses_the_goal(shop: Workshop, court: Court) -> None:
    court.says(Say("one two three four five six", pause=0.1))
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        await until(lambda: bool(shop.heard(TextAdded)))
        assert pursuit.talk.stop()
        assert "you stopped the turn" in await pursuit.until_notice("Goal paused")
        assert (await pursuit.state()).status == "paused"
    assert court.judged == []


async def test_failed_turns_are_retried_with_delay_and_the_third_pauses_the_goal(shop: Workshop, court: Court) -> None:
    clock = SettableClock(datetime.now(UTC))
    court.says(*[Fail(401)] * 3)
    async with pursue(shop, clock=clock) as pursuit:
        await pursuit.set("Win")
        assert "30 s" in await pursuit.until_notice("the turn failed")
        for waits, failures in ((30, 1), (120, 2)):
            parked = (await pursuit.state()).parked
            assert parked is not None
            assert parked.until == clock.now() + timedelta(seconds=waits)
            clock.advance(timedelta(seconds=waits))
            pursuit.talk.follow()
            await pursuit.until_notice("the turn failed" if failures == 1 else "Goal paused", 2 if failures == 1 else 1)
        state = await pursuit.state()
        assert state.status == "paused"
        assert "3 turns in a row failed" in state.paused_reason
        assert [one.verdict for one in await pursuit.manager.history()] == ["failed"] * 3


async def test_successful_turn_resets_the_failure_count(shop: Workshop, court: Court) -> None:
    clock = SettableClock(datetime.now(UTC))
    court.says(Fail(401), "back again")
    async with pursue(shop, clock=clock) as pursuit:
        await pursuit.set("Win")
        await pursuit.until_notice("the turn failed")
        clock.advance(timedelta(seconds=30))
        pursuit.talk.follow()
        await pursuit.until_notice("Goal reached")
        state = await pursuit.state()
    assert (state.failures, state.turns_used) == (0, 2)


async def test_pause_and_pending_judgement_survive_the_end_of_the_program(shop: Workshop, court: Court) -> None:
    never = asyncio.Event()
    court.rules(never)
    async with pursue(shop, seconds=60) as pursuit:
        await pursuit.set("Win")
        await court.until_judged()
    court.rules(NOT_YET, NOT_YET)
    async with pursue(shop) as pursuit:
        pursuit.begin()
        await pursuit.until_notice("not reached yet")
        await pursuit.manager.pause("lunch")
    async with pursue(shop) as pursuit:
        assert await pursuit.manager.load() is not None
        assert "lunch" in pursuit.manager.status_line()
        before = len(court.worked)
        pursuit.begin()
        await pursuit.talk.settled()
        await pursuit.manager.resume()
        pursuit.begin()
        await pursuit.until_notice("Goal reached")
        assert len(court.worked) >= before + 1


async def test_goal_stays_open_until_its_verify_command_succeeds(shop: Workshop, court: Court) -> None:
    class Flag:
        async def __call__(self, command: str, *, vouched: bool) -> Evidence:
            return Evidence(0 if len(court.worked) == 3 else 1, f"{len(court.worked)} of 3")

    async with pursue(shop, verify=Flag()) as pursuit:
        await pursuit.set("Win\nverify: make test")
        await pursuit.until_notice("Goal reached")
        verdicts = await pursuit.manager.history()
    assert [(one.verdict, one.exit_code) for one in verdicts] == [("continue", 1), ("continue", 1), ("done", 0)]
    assert "1 of 3" in (await user_messages(shop))[1]


async def test_criterion_added_during_judgement_is_judged_too(shop: Workshop, court: Court) -> None:
    slow = asyncio.Event()
    court.rules(slow, DONE, NOT_YET, DONE)
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        await court.until_judged()
        await pursuit.manager.add_subgoal("with grace")
        slow.set()
        await pursuit.until_notice("Goal reached")
    assert "with grace" in court.judged[1].question
    assert "with grace" in (await user_messages(shop))[1]


async def test_stop_condition_pauses_the_goal(shop: Workshop, court: Court) -> None:
    court.rules('{"verdict": "stop", "reason": "An API key is required."}')
    async with pursue(shop) as pursuit:
        await pursuit.set("Win | stop when: a key is needed")
        await pursuit.until_notice("Goal paused")
        assert (await pursuit.state()).paused_reason == "An API key is required"


async def test_short_lived_program_leaves_the_judgement_to_a_lasting_one(shop: Workshop, court: Court) -> None:
    async with pursue(shop, lasting=False) as pursuit:
        await pursuit.set("Win")
        await pursuit.talk.settled()
        assert not pursuit.talk.has_running_work
        assert (await pursuit.state()).pending is not None
    assert court.judged == []
    async with pursue(shop) as pursuit:
        pursuit.begin()
        await pursuit.until_notice("Goal reached")


async def test_turn_run_by_another_program_during_judgement_is_judged(shop: Workshop, court: Court) -> None:
    slow = asyncio.Event()
    court.rules(slow, NOT_YET, DONE)
    court.says("first step", Say("an answer over there", pause=0.2))
    async with pursue(shop, seconds=60) as here, pursue(shop, lasting=False) as there:
        await here.set("Win the game")
        await court.until_judged()
        await there.say("How is it going?", "1")
        await until(lambda: len(court.worked) == 2)
        slow.set()
        await here.until_notice("Goal reached")
    assert "an answer over there" in court.judged[-1].question


async def test_pause_during_judgement_is_preserved(shop: Workshop, court: Court) -> None:
    slow = asyncio.Event()
    court.rules(slow, NOT_YET)
    async with pursue(shop) as pursuit:
        await pursuit.set("Win")
        await court.until_judged()
        await pursuit.manager.pause()
        slow.set()
        assert not await _follow_up(pursuit)
        state = await pursuit.state()
    assert (state.status, state.turns_used, len(court.worked)) == ("paused", 0, 1)


async def _follow_up(pursuit: Pursuit) -> bool:
    async with asyncio.timeout(LIMIT):
        return await pursuit.follower.follow_up()
