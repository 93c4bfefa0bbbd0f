"""The summary in force: one, kept beside the log, and its break of the prefix recorded when it is first shown."""

import msgspec
import pytest

from talaria.agent.window import Summary
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.sessions.prefix import BREAK
from talaria.sessions.summaries import StoredSummaries

FIRST, SECOND = Summary(10, "ten messages"), Summary(20, "twenty messages")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


@pytest.fixture
def summaries(store: Store, session_id: SessionId) -> StoredSummaries:
    return StoredSummaries(store, session_id)


async def breaks(store: Store, session_id: SessionId) -> list[str]:
    events = await store.read(lambda tx: tx.events.after(f"session:{session_id}", 0))
    return [msgspec.json.decode(event.payload)["reason"] for event in events if event.kind == BREAK]


async def test_a_new_conversation_has_none(summaries: StoredSummaries) -> None:
    assert await summaries.load() is None


async def test_the_last_one_is_in_force_for_everybody(
    store: Store, session_id: SessionId, summaries: StoredSummaries
) -> None:
    await summaries.save(FIRST)
    await summaries.save(SECOND)
    assert await summaries.load() == await StoredSummaries(store, session_id).load() == SECOND


async def test_the_break_is_recorded_once_and_when_the_summary_is_first_shown(
    store: Store, session_id: SessionId, summaries: StoredSummaries
) -> None:
    await summaries.save(FIRST)
    assert await breaks(store, session_id) == []
    await summaries.load()
    await summaries.load()
    assert await breaks(store, session_id) == ["messages 1 to 10 are summarised"]


async def test_a_summary_that_nobody_was_shown_breaks_nothing(
    store: Store, session_id: SessionId, summaries: StoredSummaries
) -> None:
    await summaries.save(FIRST)
    await summaries.save(SECOND)
    await summaries.load()
    assert await breaks(store, session_id) == ["messages 1 to 20 are summarised"]


async def test_a_summary_that_comes_late_does_not_undo_a_longer_one(summaries: StoredSummaries) -> None:
    await summaries.save(SECOND)
    await summaries.save(FIRST)
    assert await summaries.load() == SECOND
