"""Transcripts."""

import asyncio
from collections.abc import Callable
from datetime import timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.sample_messages import text_message, texts

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, StoredMessage
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from talaria.storage.async_store import ThreadedStore
from talaria.testing.clock import NOON, SettableClock


@pytest.fixture
def session(mine: Transaction) -> SessionId:
    return mine.sessions.create(NewSession(source="cli")).id


def test_messages_are_loaded_in_the_order_they_were_stored(mine: Transaction, session: SessionId) -> None:
    assert mine.messages.append(session, [text_message("a"), text_message("b")]) == 2
    assert mine.messages.append(session, [text_message("c", at=NOON - timedelta(days=1))]) == 3
    assert texts(mine.messages.load(session)) == [(1, "a"), (2, "b"), (3, "c")]


def test_message_with_all_kinds_of_parts_is_loaded_unchanged(mine: Transaction, session: SessionId) -> None:
    message = Message(
        role="assistant",
        parts=(
            Text("Grüße, 世界 👩‍👩‍👧 \u202e"),
            Image("https://example.test/a.png", "image/webp"),
            File("notes.txt", "notes.txt", "text/plain"),
            Reasoning("hm", "c2lnbmF0dXJl"),
            ToolCall("call-1", "read_file", '{"path": "a\\tb"}'),
            ToolResult("call-1", "no such file", failed=True),
        ),
        at=NOON + timedelta(microseconds=1),
        author="ana",
        model="large",
        tokens=0,
        platform_message_id="42",
    )
    mine.messages.append(session, [message])
    assert mine.messages.load(session) == [StoredMessage(session, 1, message)]


def test_message_without_parts_is_loaded_unchanged(mine: Transaction, session: SessionId) -> None:
    mine.messages.append(session, [Message(role="assistant", parts=(), at=NOON)])
    assert mine.messages.load(session)[0].message.parts == ()


def test_message_time_is_stored_from_any_time_zone(mine: Transaction, session: SessionId) -> None:
    there = NOON.astimezone(timezone(timedelta(hours=9)))
    mine.messages.append(session, [text_message("a", at=there)])
    assert mine.messages.load(session)[0].message.at == NOON


PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, st.text()),
    st.builds(Reasoning, st.text(), st.text()),
    st.builds(ToolCall, st.text(), st.text(), st.text()),
    st.builds(ToolResult, st.text(), st.text(), st.booleans()),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, max_size=4))
def test_message_with_any_text_is_loaded_unchanged(mine: Transaction, session: SessionId, parts: list[Part]) -> None:
    message = Message(role="user", parts=tuple(parts), at=NOON)
    mine.messages.append(session, [message])
    assert [stored.message for stored in mine.messages.last(session, 1)] == [message]


def test_very_long_message_is_loaded_in_full(mine: Transaction, session: SessionId) -> None:
    text = "".join(f"{number:x} 漢字{number} " for number in range(60_000))
    mine.messages.append(session, [text_message(text)])
    assert mine.messages.load(session)[0].message.text == text


def test_transcript_is_loaded_in_pages_from_any_message(mine: Transaction, session: SessionId) -> None:
    mine.messages.append(session, [text_message(letter) for letter in "abcdef"])
    assert texts(mine.messages.load(session, after=4)) == [(5, "e"), (6, "f")]
    assert texts(mine.messages.load(session, after=1, limit=2)) == [(2, "b"), (3, "c")]
    assert mine.messages.load(session, after=6) == []
    assert mine.messages.load(session, limit=0) == []


def test_pages_of_a_branch_include_messages_of_its_parent(mine: Transaction, session: SessionId) -> None:
    mine.messages.append(session, [text_message(letter) for letter in "abc"])
    branch = mine.sessions.create(NewSession(source="cli", parent_id=session, parent_seq=3)).id
    mine.messages.append(branch, [text_message("d"), text_message("e")])
    assert texts(mine.messages.load(branch, after=1, limit=3)) == [(2, "b"), (3, "c"), (4, "d")]
    assert texts(mine.messages.load(branch, after=3)) == [(4, "d"), (5, "e")]
    assert texts(mine.messages.last(branch, 3)) == [(3, "c"), (4, "d"), (5, "e")]


def test_newest_messages_are_returned_oldest_first(mine: Transaction, session: SessionId) -> None:
    mine.messages.append(session, [text_message(letter) for letter in "abcd"])
    assert texts(mine.messages.last(session, 2)) == [(3, "c"), (4, "d")]
    assert len(mine.messages.last(session, 9)) == 4
    assert mine.messages.last(session, 0) == []


def test_unknown_session_has_no_messages_and_accepts_none(mine: Transaction) -> None:
    nowhere = SessionId("nowhere")
    assert (mine.messages.load(nowhere), mine.messages.last(nowhere, 1)) == ([], [])
    assert mine.messages.with_platform_id(nowhere, "1") is None
    with pytest.raises(NotFound):
        mine.messages.append(nowhere, [text_message("a")])


def test_new_message_updates_time_and_message_count_of_its_session(
    mine: Transaction, session: SessionId, clock: SettableClock
) -> None:
    clock.advance(timedelta(hours=1))
    mine.messages.append(session, [text_message("a"), text_message("b")])
    changed = mine.sessions.get(session)
    assert changed is not None
    assert (changed.updated_at, changed.message_count) == (clock.now(), 2)


def test_message_is_found_by_its_platform_message_id(mine: Transaction, session: SessionId) -> None:
    other = mine.sessions.create(NewSession(source="cli")).id
    for where, text in ((session, "here"), (other, "there")):
        mine.messages.append(where, [Message(role="user", parts=(Text(text),), at=NOON, platform_message_id="7")])
    found = mine.messages.with_platform_id(session, "7")
    assert found is not None
    assert (found.session_id, found.message.text) == (session, "here")
    assert mine.messages.with_platform_id(session, "8") is None


def test_branch_finds_parent_messages_only_up_to_its_start(mine: Transaction, session: SessionId) -> None:
    for name in ("before", "after"):
        mine.messages.append(session, [Message(role="user", parts=(), at=NOON, platform_message_id=name)])
    branch = mine.sessions.create(NewSession(source="cli", parent_id=session, parent_seq=1)).id
    found = mine.messages.with_platform_id(branch, "before")
    assert found is not None
    assert (found.session_id, found.seq) == (branch, 1)
    assert mine.messages.with_platform_id(branch, "after") is None


async def test_appends_from_many_tasks_leave_no_gaps(store: ThreadedStore, database: Database) -> None:
    session = (await store.write(lambda tx: tx.sessions.create(NewSession(source="cli")))).id

    def append(text: str) -> Callable[[Transaction], int]:
        return lambda tx: tx.messages.append(session, [text_message(text)])

    async def append_five(name: int) -> list[int]:
        return [await store.write(append(f"{name}.{index}")) for index in range(5)]

    numbers = await asyncio.gather(*(append_five(name) for name in range(16)))
    assert sorted(number for one in numbers for number in one) == list(range(1, 81))
    stored = texts(database.read(lambda tx: tx.messages.load(session)))
    assert [seq for seq, _ in stored] == list(range(1, 81))
    for name, mine in enumerate(numbers):
        assert [text for seq, text in stored if seq in mine] == [f"{name}.{index}" for index in range(5)]
