"""The fixed part of a conversation's requests stays as it was, or it is written down why it did not."""

import msgspec
import pytest

from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.sessions.model_context import PREFIX_BREAK, Prefix, choose_prefix, read_prefix, save_prefix

FIRST = Prefix(instructions="Be brief.", tools="t1", model="m1")


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


async def use(store: Store, session_id: SessionId, wanted: Prefix) -> str:
    """Take a turn with this prefix, as the program does, and return the instructions that it was given."""
    kept = await store.read(lambda tx: read_prefix(tx, session_id))
    found = choose_prefix(kept, wanted, lambda: wanted.instructions)
    await store.write(lambda tx: save_prefix(tx, session_id, found))
    return found.instructions


async def reasons(store: Store, session_id: SessionId) -> list[str]:
    events = await store.read(lambda tx: tx.events.after(f"session:{session_id}", 0))
    return [msgspec.json.decode(event.payload)["reason"] for event in events if event.kind == PREFIX_BREAK]


async def test_the_first_instructions_are_taken_without_a_word(store: Store, session_id: SessionId) -> None:
    assert await use(store, session_id, FIRST) == "Be brief."
    assert await reasons(store, session_id) == []


async def test_other_instructions_do_not_change_a_conversation_that_has_begun(
    store: Store, session_id: SessionId
) -> None:
    await use(store, session_id, FIRST)
    wanted = msgspec.structs.replace(FIRST, instructions="Today is Tuesday.")
    assert await use(store, session_id, wanted) == "Be brief."
    assert await reasons(store, session_id) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "m2"}, "the model changed"),
        ({"tools": "t2"}, "the tool set changed"),
        ({"model": "m2", "tools": "t2"}, "the model changed"),
        ({"manner": "high"}, "the model's options changed"),
    ],
)
async def test_what_changes_the_prefix_anyway_brings_new_instructions_and_one_reason(
    store: Store, session_id: SessionId, change: dict[str, str], reason: str
) -> None:
    await use(store, session_id, FIRST)
    wanted = msgspec.structs.replace(FIRST, instructions="Be long.", **change)
    assert await use(store, session_id, wanted) == "Be long."
    assert await use(store, session_id, wanted) == "Be long."
    assert await reasons(store, session_id) == [reason]


async def test_conversations_do_not_share_their_prefix(store: Store, session_id: SessionId) -> None:
    other = (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id
    await use(store, session_id, FIRST)
    wanted = msgspec.structs.replace(FIRST, instructions="Be kind.")
    assert await use(store, other, wanted) == "Be kind."


async def test_a_conversation_that_is_only_looked_at_changes_nothing(store: Store, session_id: SessionId) -> None:
    await use(store, session_id, FIRST)
    kept = await store.read(lambda tx: read_prefix(tx, session_id))
    other = msgspec.structs.replace(FIRST, instructions="", model="m2")
    assert choose_prefix(kept, other, lambda: "Be kind.").instructions == "Be kind."
    assert await use(store, session_id, FIRST) == "Be brief."
    assert await reasons(store, session_id) == []


async def test_instructions_are_made_only_where_they_are_used(store: Store, session_id: SessionId) -> None:
    def never() -> str:
        raise AssertionError

    await use(store, session_id, FIRST)
    kept = await store.read(lambda tx: read_prefix(tx, session_id))
    assert choose_prefix(kept, msgspec.structs.replace(FIRST, instructions=""), never) == FIRST
