"""Typed values: session values, deleted with their session, and named values."""

from datetime import UTC, datetime

import pytest
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.values import SINGLE, NamedValue, SessionValue, Stored
from talaria.core.errors import UnreadableValue
from talaria.core.ids import SessionId


class Note(Struct, frozen=True):
    text: str
    at: datetime | None = None


NOTE = SessionValue("note", Note)
PLAIN = SessionValue("plain", str)
OTHER_NOTE = SessionValue("note2", Note)
MAYBE: SessionValue[Note | None] = SessionValue("maybe", Note | None)
HOME = NamedValue("home", Note)
FLAG = NamedValue("flag", bool)
COUNT = NamedValue("count", int)
ONE, TWO = SessionId("one"), SessionId("two")
FULL = Note("rest — 東京", datetime(2026, 1, 2, 3, 4, 5, 6, UTC))


def test_a_session_value_is_read_back_with_its_type_and_version(mine: Transaction) -> None:
    assert NOTE.write(mine, ONE, Note("climb")) == 1
    assert NOTE.write(mine, ONE, FULL) == 2
    assert NOTE.get(mine, ONE) == FULL
    assert NOTE.read(mine, ONE) == Stored(FULL, 2)
    assert NOTE.version(mine, ONE) == 2
    assert (NOTE.get(mine, TWO), NOTE.read(mine, TWO), NOTE.version(mine, TWO)) == (None, Stored(None, 0), 0)
    assert OTHER_NOTE.get(mine, ONE) is None


def test_text_value_is_stored_without_encoding(mine: Transaction) -> None:
    PLAIN.write(mine, ONE, '{"a": 1}\n"')
    row = mine.session_values.get(ONE, "plain", "")
    assert row is not None
    assert row.value == PLAIN.get(mine, ONE) == '{"a": 1}\n"'


def test_a_session_value_is_replaced_only_at_the_version_that_was_read(mine: Transaction, theirs: Transaction) -> None:
    assert NOTE.replace(mine, ONE, Note("a"), version=0)
    assert not NOTE.replace(mine, ONE, Note("b"), version=0)
    read = NOTE.read(mine, ONE)
    assert NOTE.replace(theirs, ONE, Note("c"), version=read.version)
    assert not NOTE.replace(mine, ONE, Note("d"), version=read.version)
    assert not NOTE.replace(mine, TWO, Note("d"), version=1)
    assert NOTE.read(mine, ONE) == Stored(Note("c"), 2)


def test_none_value_still_increments_the_version(mine: Transaction) -> None:
    assert MAYBE.replace(mine, ONE, Note("a"), version=0)
    assert MAYBE.replace(mine, ONE, None, version=1)
    assert MAYBE.read(mine, ONE) == Stored(None, 2)


def test_a_session_has_several_items_of_one_value(mine: Transaction) -> None:
    for item in ("b", "a", "ä", "B"):
        NOTE.write(mine, ONE, Note(item), item)
    NOTE.write(mine, TWO, Note("two"), "a")
    assert list(NOTE.items(mine, ONE)) == ["B", "a", "b", "ä"]
    assert [(session, item) for session, item, _ in NOTE.of_all(mine)] == [
        (ONE, "B"), (ONE, "a"), (TWO, "a"), (ONE, "b"), (ONE, "ä")
    ]  # fmt: skip
    assert set(NOTE.sessions(mine)) == {ONE, TWO}
    assert NOTE.delete(mine, ONE, "a")
    assert not NOTE.delete(mine, ONE, "a")
    assert not NOTE.delete(mine, ONE)
    assert list(NOTE.items(mine, ONE)) == ["B", "b", "ä"]


def test_a_value_is_copied_to_another_session(mine: Transaction) -> None:
    NOTE.copy(mine, ONE, TWO)
    assert NOTE.get(mine, TWO) is None
    NOTE.write(mine, ONE, FULL)
    NOTE.copy(mine, ONE, TWO)
    assert NOTE.read(mine, TWO) == Stored(FULL, 1)


def test_session_values_are_deleted_only_with_their_own_session(mine: Transaction) -> None:
    sessions = [mine.sessions.create(NewSession(source="cli")).id for _ in range(2)]
    similar = SessionId(f"x{sessions[0]}")
    for session_id in (*sessions, similar):
        NOTE.write(mine, session_id, Note("kept"))
        PLAIN.write(mine, session_id, "kept", "item")
    assert mine.sessions.delete(sessions[0])
    assert set(NOTE.sessions(mine)) == set(PLAIN.sessions(mine)) == {sessions[1], similar}


def test_a_named_value_is_read_back_and_replaced_by_version(mine: Transaction, theirs: Transaction) -> None:
    assert HOME.write(mine, "telegram", Note("a")) == 1
    assert HOME.replace(theirs, "telegram", FULL, version=1)
    assert not HOME.replace(mine, "telegram", Note("b"), version=1)
    assert not HOME.replace(mine, "slack", Note("b"), version=1)
    assert HOME.replace(mine, "slack", Note("b"), version=0)
    assert not HOME.replace(mine, "slack", Note("c"), version=0)
    assert HOME.read(mine, "telegram") == Stored(FULL, 2)
    assert HOME.get(mine, "discord") is None


def test_deleted_named_value_restarts_at_version_one(mine: Transaction) -> None:
    COUNT.write(mine, SINGLE, 7)
    assert COUNT.delete(mine, SINGLE)
    assert not COUNT.delete(mine, SINGLE)
    assert COUNT.version(mine, SINGLE) == 0
    assert COUNT.write(mine, SINGLE, 8) == 1


def test_named_values_are_listed_by_prefix_in_the_order_of_bytes(mine: Transaction) -> None:
    for key in ("goal:b", "goal:a", "goal:ä", "goal:B", "goals", "goal", "home", "日本:1", "a%b", "axb", "a_b"):
        FLAG.write(mine, key, value=True)
    COUNT.write(mine, "goal:c", 1)
    assert FLAG.keys(mine, "goal:") == ["goal:B", "goal:a", "goal:b", "goal:ä"]
    assert FLAG.items(mine, "goal:a") == {"goal:a": True}
    assert [FLAG.keys(mine, prefix) for prefix in ("a%", "a_", "日本:", "none")] == [["a%b"], ["a_b"], ["日本:1"], []]
    assert len(FLAG.keys(mine)) == 11


@pytest.mark.parametrize("last", ["\U0010ffff", "\ud7ff", "z"])
def test_key_prefix_can_end_with_any_character(mine: Transaction, last: str) -> None:
    for key in (last, f"{last}a", f"{last}\U0010ffff", "b", "\ue000"):
        FLAG.write(mine, key, value=True)
    assert FLAG.keys(mine, last) == [last, f"{last}a", f"{last}\U0010ffff"]


def test_error_for_an_unreadable_value_names_its_key(mine: Transaction) -> None:
    mine.session_values.put(ONE, "note", "", "{")
    mine.named_values.put("home", "telegram", '{"text": 5}')
    with pytest.raises(UnreadableValue, match="note:one"):
        NOTE.get(mine, ONE)
    with pytest.raises(UnreadableValue, match="home:telegram"):
        HOME.items(mine)
