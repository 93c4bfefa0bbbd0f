"""Which goals a worker resumes: those with something to do now, found through an index."""

from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId, new_turn_id
from talaria.goals.goal import Waiting, read_goal
from talaria.goals.goal_manager import GoalManager
from talaria.goals.goal_store import resumable_goals, write_goal

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


async def with_goal(store: Store) -> SessionId:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
    await GoalManager(session.id, store=store).set("Win the game")
    return session.id


def park(tx: Transaction, session_id: SessionId, until: datetime) -> None:
    """Let a goal wait, with nothing in the inbox."""
    tx.inbox.settle([item.id for item in tx.inbox.unsettled(session_id)])
    kept = read_goal(tx, session_id)
    assert kept.state is not None
    parked = Waiting(new_turn_id(), until, "the glue dries")
    write_goal(tx, session_id, kept, structs.replace(kept.state, parked=parked))


async def test_waits_are_found_when_they_are_over(store: Store) -> None:
    due, later, queued = [await with_goal(store) for _ in range(3)]
    await store.write(lambda tx: park(tx, due, NOW))
    await store.write(lambda tx: park(tx, later, NOW + timedelta(hours=1)))
    assert await store.read(lambda tx: resumable_goals(tx, NOW)) == [due]
    found = await store.read(lambda tx: resumable_goals(tx, NOW + timedelta(hours=2)))
    assert sorted(found) == sorted([due, later])
    assert queued not in found


async def test_paused_and_dropped_goals_are_not_found(store: Store) -> None:
    paused, dropped, deleted = [await with_goal(store) for _ in range(3)]
    for session_id in (paused, dropped, deleted):
        await store.write(partial(park, session_id=session_id, until=NOW))
    await GoalManager(paused, store=store).pause()
    await GoalManager(dropped, store=store).clear()
    await store.write(lambda tx: tx.sessions.delete(deleted))
    assert await store.read(lambda tx: resumable_goals(tx, NOW)) == []
