"""The current summary: stored next to the transcript, with its prefix break recorded on first use."""

import msgspec
import pytest

from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import Summary
from talaria.core.ids import SessionId
from talaria.sessions.model_context import PREFIX_BREAK, StoredHistory

FIRST, SECOND = Summary(10, "ten messages"), Summary(20, "twenty messages")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


@pytest.fixture
def history(store: Store, session_id: SessionId) -> StoredHistory:
    return StoredHistory(store, session_id)


async def breaks(store: Store, session_id: SessionId) -> list[str]:
    events = await store.read(lambda tx: tx.events.after(f"session:{session_id}", 0))
    return [msgspec.json.decode(event.payload)["reason"] for event in events if event.kind == PREFIX_BREAK]


async def test_new_session_has_no_summary(history: StoredHistory) -> None:
    assert await history.read(0) == (None, [])


async def test_last_saved_summary_is_read_by_all(store: Store, session_id: SessionId, history: StoredHistory) -> None:
    await history.save(FIRST)
    await history.save(SECOND)
    assert await history.read(0) == await StoredHistory(store, session_id).read(0) == (SECOND, [])


async def test_prefix_break_is_recorded_once_when_the_summary_is_first_read(
    store: Store, session_id: SessionId, history: StoredHistory
) -> None:
    await history.save(FIRST)
    assert await breaks(store, session_id) == []
    await history.read(0)
    await history.read(0)
    assert await breaks(store, session_id) == ["messages 1 to 10 are summarised"]


async def test_summary_that_was_never_read_records_no_prefix_break(
    store: Store, session_id: SessionId, history: StoredHistory
) -> None:
    await history.save(FIRST)
    await history.save(SECOND)
    await history.read(0)
    assert await breaks(store, session_id) == ["messages 1 to 20 are summarised"]


async def test_late_summary_does_not_replace_a_longer_one(history: StoredHistory) -> None:
    await history.save(SECOND)
    await history.save(FIRST)
    assert await history.read(0) == (SECOND, [])
