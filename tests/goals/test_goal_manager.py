"""Goal manager, as commands use it, on every engine."""

from datetime import timedelta

import pytest
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Store
from talaria.contracts.stores.queues import InboxItem
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.stores.turns import Cap
from talaria.core.errors import NotFound, Refused
from talaria.core.ids import SessionId, new_turn_id
from talaria.core.messages import Usage
from talaria.goals.goal import Allowance, read_goal_caps
from talaria.goals.goal_manager import GoalManager
from talaria.goals.goal_store import format_goal_badge
from talaria.testing.clock import SettableClock


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


@pytest.fixture
def goal(store: Store, session_id: SessionId, clock: SettableClock) -> GoalManager:
    return GoalManager(session_id, default_max_turns=3, store=store, clock=clock)


async def pending(store: Store, session_id: SessionId) -> list[InboxItem]:
    return await store.read(lambda tx: tx.inbox.list_unsettled(session_id))


async def test_manager_without_a_goal_does_nothing(goal: GoalManager) -> None:
    assert await goal.load() is None
    assert not goal.is_active()
    assert not goal.has_goal()
    assert goal.next_continuation_prompt() is None
    assert await goal.pause() is None
    assert not await goal.clear()
    decision = await goal.evaluate_after_turn("done")
    assert (decision.verdict, decision.should_continue) == ("inactive", False)
    with pytest.raises(Refused, match="no goal"):
        await goal.resume()


async def test_new_goal_queues_its_text_as_the_first_message(
    goal: GoalManager, store: Store, session_id: SessionId
) -> None:
    await goal.set("Make it fast\nverify: make bench")
    (item,) = await pending(store, session_id)
    assert "Make it fast\\nverify: make bench" in item.payload
    state = goal.state
    assert state is not None
    assert (state.goal, state.status, state.max_turns, state.turns_used) == ("Make it fast", "active", 3, 0)
    assert goal.is_active()
    assert goal.has_goal()
    assert goal.status_line() == "Goal (active, 0 of 3 turns): Make it fast"
    assert await store.read(lambda tx: format_goal_badge(tx, session_id)) == "goal 0/3"


async def test_a_blank_goal_is_refused_and_the_old_one_stays(goal: GoalManager) -> None:
    await goal.set("first")
    with pytest.raises(Refused, match="Say what the goal is"):
        await goal.set("  ")
    state = await goal.load()
    assert state is not None
    assert state.goal == "first"


async def test_turns_are_counted_until_the_budget_is_used_up(goal: GoalManager) -> None:
    await goal.set("win\nscope: all of it")
    await goal.add_subgoal("with grace")
    for used in (1, 2):
        decision = await goal.evaluate_after_turn("working")
        assert (decision.verdict, decision.should_continue) == ("continue", True)
        assert decision.continuation_prompt is not None
        for part in ("win", "all of it", "with grace", decision.reason):
            assert part in decision.continuation_prompt
        assert goal.state is not None
        assert goal.state.turns_used == used
    decision = await goal.evaluate_after_turn("working")
    assert (decision.verdict, decision.should_continue, decision.continuation_prompt) == ("continue", False, None)
    assert "3 turns" in decision.reason
    assert goal.state is not None
    assert (goal.state.status, goal.state.turns_used) == ("paused", 3)
    assert "3 turns" in goal.state.paused_reason
    assert (await goal.evaluate_after_turn("working")).verdict == "inactive"
    assert [one.verdict for one in await goal.history()] == ["continue"] * 3


async def test_resume_resets_the_turn_count_and_queues_the_next_step(
    goal: GoalManager, store: Store, session_id: SessionId
) -> None:
    await goal.set("win")
    await goal.evaluate_after_turn("working")
    await goal.pause("lunch")
    assert goal.status_line().endswith("Paused because lunch.")
    assert await pending(store, session_id) == []
    state = await goal.resume()
    assert (state.status, state.turns_used, state.paused_reason) == ("active", 0, "")
    (step,) = await pending(store, session_id)
    assert "win" in step.payload
    assert step.priority < 0
    with pytest.raises(Refused, match="already"):
        await goal.resume()
    await goal.pause()
    await goal.resume()
    assert len(await pending(store, session_id)) == 1


async def test_pending_messages_of_an_old_goal_are_withdrawn(
    goal: GoalManager, store: Store, session_id: SessionId
) -> None:
    await goal.set("first")
    await goal.set("second")
    (item,) = await pending(store, session_id)
    assert "second" in item.payload
    assert await goal.clear()
    assert await pending(store, session_id) == []
    assert goal.state is None
    assert await goal.load() is None
    await goal.set("third")
    assert goal.is_active()


async def test_running_turn_allows_to_pause_and_clear_a_goal_but_not_to_set_or_resume(
    goal: GoalManager, store: Store, session_id: SessionId
) -> None:
    await goal.set("first")
    await store.write(lambda tx: tx.turns.begin(session_id, new_turn_id()))
    with pytest.raises(Refused, match="stop it first"):
        await goal.set("second")
    assert await goal.pause() is not None
    with pytest.raises(Refused, match="stop it first"):
        await goal.resume()
    assert await goal.clear()


async def test_criteria_are_numbered_as_they_are_shown(goal: GoalManager) -> None:
    with pytest.raises(Refused, match="no goal"):
        await goal.add_subgoal("a")
    await goal.set("win")
    for text in ("a", "b", "c"):
        await goal.add_subgoal(text)
    assert (await goal.remove_subgoal(2)).subgoals == ("a", "c")
    with pytest.raises(NotFound, match="no criterion 3"):
        await goal.remove_subgoal(3)
    with pytest.raises(Refused, match="Say what the criterion is"):
        await goal.add_subgoal("  ")


async def test_two_programs_see_the_same_goal(
    goal: GoalManager, store_location: StoreLocation, clock: SettableClock, session_id: SessionId
) -> None:
    other_store = store_location.open_store(clock, "worker-2")
    other = GoalManager(session_id, store=other_store)
    await goal.set("win")
    await other.add_subgoal("from afar")
    await other.pause("elsewhere")
    state = await goal.load()
    await other_store.close()
    assert state is not None
    assert (state.subgoals, state.paused_reason, state.max_turns) == (("from afar",), "elsewhere", 3)


@pytest.mark.parametrize(
    ("allowance", "named"),
    [
        (Allowance(turns=9, tokens=100), "100 tokens"),
        (Allowance(turns=9, microdollars=2_000_000), "$2.00"),
        (Allowance(turns=9, seconds=3_600), "1 h"),
    ],
)
async def test_every_kind_of_budget_pauses_the_goal_and_is_named(
    store: Store, session_id: SessionId, clock: SettableClock, allowance: Allowance, named: str
) -> None:
    used = Usage(calls=1, input_tokens=90, output_tokens=20, cost_microdollars=2_500_000)
    await store.write(lambda tx: tx.usage.add(session_id, used))
    goal = GoalManager(session_id, store=store, allowance=allowance, clock=clock)
    await goal.set("win")
    assert (await goal.evaluate_after_turn("x")).should_continue
    await store.write(lambda tx: tx.usage.add(session_id, used))
    clock.advance(timedelta(hours=1))
    decision = await goal.evaluate_after_turn("x")
    assert not decision.should_continue
    assert named in decision.reason
    await goal.resume()
    assert (await goal.evaluate_after_turn("x")).should_continue


async def test_cost_budget_of_a_goal_is_a_cap_only_while_the_goal_is_active(
    goal: GoalManager, store: Store, session_id: SessionId
) -> None:
    async def caps() -> list[Cap]:
        return list(await store.read(lambda tx: read_goal_caps(tx, session_id)))

    assert await caps() == []
    state = await goal.set("win\nbudget: $2")
    assert await caps() == [Cap(state.account, 2_000_000)]
    await goal.pause()
    assert await caps() == []
    resumed = await goal.resume()
    assert await caps() == [Cap(resumed.account, 2_000_000)]
    assert resumed.account != state.account


async def test_goal_is_deleted_with_its_session(goal: GoalManager, store: Store, session_id: SessionId) -> None:
    await goal.set("win")
    await goal.evaluate_after_turn("x")
    await store.write(lambda tx: tx.sessions.delete(session_id))
    assert await goal.load() is None
    assert await goal.history() == []
    with pytest.raises(NotFound):
        await goal.set("again")
