"""Goals that a worker can resume now, found through an index."""

from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId, new_turn_id
from talaria.goals.goal import Waiting, read_goal
from talaria.goals.goal_manager import GoalManager
from talaria.goals.goal_store import list_resumable_goals, write_goal

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


async def with_goal(store: Store) -> SessionId:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
    await GoalManager(session.id, store=store).set("Win the game")
    return session.id


def park(tx: Transaction, session_id: SessionId, until: datetime) -> None:
    """Let a goal wait, with an empty inbox."""
    tx.inbox.settle([item.id for item in tx.inbox.list_unsettled(session_id)])
    stored = read_goal(tx, session_id)
    assert stored.state is not None
    parked = Waiting(new_turn_id(), until, "the glue dries")
    write_goal(tx, session_id, stored, structs.replace(stored.state, parked=parked))


async def test_waiting_goals_are_found_when_their_wait_is_over(store: Store) -> None:
    due, later, queued = [await with_goal(store) for _ in range(3)]
    await store.write(lambda tx: park(tx, due, NOW))
    await store.write(lambda tx: park(tx, later, NOW + timedelta(hours=1)))
    assert await store.read(lambda tx: list_resumable_goals(tx, NOW)) == [due]
    found = await store.read(lambda tx: list_resumable_goals(tx, NOW + timedelta(hours=2)))
    assert sorted(found) == sorted([due, later])
    assert queued not in found


async def test_paused_cleared_and_deleted_goals_are_not_found(store: Store) -> None:
    paused, cleared, deleted = [await with_goal(store) for _ in range(3)]
    for session_id in (paused, cleared, deleted):
        await store.write(partial(park, session_id=session_id, until=NOW))
    await GoalManager(paused, store=store).pause()
    await GoalManager(cleared, store=store).clear()
    await store.write(lambda tx: tx.sessions.delete(deleted))
    assert await store.read(lambda tx: list_resumable_goals(tx, NOW)) == []
