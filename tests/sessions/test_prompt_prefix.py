"""The prompt prefix of a session stays the same, or the reason for a break is recorded."""

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


async def use(store: Store, session_id: SessionId, proposed: Prefix) -> str:
    """Choose and save a prefix, as a turn does, and return the instructions that are used."""
    stored = await store.read(lambda tx: read_prefix(tx, session_id))
    found = choose_prefix(stored, proposed, lambda: proposed.instructions)
    await store.write(lambda tx: save_prefix(tx, session_id, found))
    return found.instructions


async def reasons(store: Store, session_id: SessionId) -> list[str]:
    events = await store.read(lambda tx: tx.events.after(f"session:{session_id}", 0))
    return [msgspec.json.decode(event.payload)["reason"] for event in events if event.kind == PREFIX_BREAK]


async def test_first_instructions_are_used_without_a_prefix_break(store: Store, session_id: SessionId) -> None:
    assert await use(store, session_id, FIRST) == "Be brief."
    assert await reasons(store, session_id) == []


async def test_changed_instructions_do_not_affect_a_started_session(store: Store, session_id: SessionId) -> None:
    await use(store, session_id, FIRST)
    proposed = msgspec.structs.replace(FIRST, instructions="Today is Tuesday.")
    assert await use(store, session_id, proposed) == "Be brief."
    assert await reasons(store, session_id) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "m2"}, "the model changed"),
        ({"tools": "t2"}, "the tool set changed"),
        ({"model": "m2", "tools": "t2"}, "the model changed"),
        ({"options": "high"}, "the model's options changed"),
    ],
)
async def test_changed_model_or_tools_apply_new_instructions_and_record_one_break(
    store: Store, session_id: SessionId, change: dict[str, str], reason: str
) -> None:
    await use(store, session_id, FIRST)
    proposed = msgspec.structs.replace(FIRST, instructions="Be long.", **change)
    assert await use(store, session_id, proposed) == "Be long."
    assert await use(store, session_id, proposed) == "Be long."
    assert await reasons(store, session_id) == [reason]


async def test_sessions_do_not_share_their_prefix(store: Store, session_id: SessionId) -> None:
    other = (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id
    await use(store, session_id, FIRST)
    proposed = msgspec.structs.replace(FIRST, instructions="Be kind.")
    assert await use(store, other, proposed) == "Be kind."


async def test_choosing_a_prefix_without_saving_changes_nothing(store: Store, session_id: SessionId) -> None:
    await use(store, session_id, FIRST)
    stored = await store.read(lambda tx: read_prefix(tx, session_id))
    other = msgspec.structs.replace(FIRST, instructions="", model="m2")
    assert choose_prefix(stored, other, lambda: "Be kind.").instructions == "Be kind."
    assert await use(store, session_id, FIRST) == "Be brief."
    assert await reasons(store, session_id) == []


async def test_instructions_are_built_only_when_needed(store: Store, session_id: SessionId) -> None:
    def never() -> str:
        raise AssertionError

    await use(store, session_id, FIRST)
    stored = await store.read(lambda tx: read_prefix(tx, session_id))
    assert choose_prefix(stored, msgspec.structs.replace(FIRST, instructions=""), never) == FIRST
