"""Bindings of chats to sessions."""

from datetime import timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Binding, NewSession
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.testing.clock import NOON, SettableClock

HOME = Address("telegram", "1", "group", thread_id="7", user_id="ana")
ONE, TWO = SessionId("one"), SessionId("two")


def test_address_is_bound_to_a_session(mine: Transaction) -> None:
    assert mine.bindings.bind("key", ONE, HOME) is None
    assert mine.bindings.get("key") == Binding("key", ONE, HOME, NOON)
    assert mine.bindings.get("other") is None


def test_binding_again_returns_the_replaced_binding(mine: Transaction, clock: SettableClock) -> None:
    mine.bindings.bind("key", ONE, HOME)
    clock.advance(timedelta(minutes=1))
    other_address = Address("telegram", "2")
    assert mine.bindings.bind("key", TWO, other_address) == Binding("key", ONE, HOME, NOON)
    assert mine.bindings.get("key") == Binding("key", TWO, other_address, clock.now())


def test_replaced_binding_can_be_restored(mine: Transaction) -> None:
    mine.bindings.bind("key", ONE, HOME)
    replaced = mine.bindings.bind("key", TWO, HOME)
    assert replaced is not None
    mine.bindings.bind(replaced.key, replaced.session_id, replaced.address)
    assert mine.bindings.get("key") == replaced


def test_bindings_of_a_session_are_listed_last_bound_first(mine: Transaction, clock: SettableClock) -> None:
    for key in ("b", "a", "c"):
        mine.bindings.bind(key, ONE, HOME)
        clock.advance(timedelta(seconds=1))
    mine.bindings.bind("d", TWO, HOME)
    mine.bindings.bind("b", ONE, HOME)
    assert [binding.key for binding in mine.bindings.of_session(ONE)] == ["b", "c", "a"]


def test_bindings_are_found_by_key_prefix(mine: Transaction, clock: SettableClock) -> None:
    for key in ("chat:1:ann", "chat:1:bob", "chat:10:ann", "chat%1:ann"):
        mine.bindings.bind(key, ONE, HOME)
        clock.advance(timedelta(seconds=1))
    assert [binding.key for binding in mine.bindings.under("chat:1:")] == ["chat:1:bob", "chat:1:ann"]
    assert mine.bindings.under("other") == []


def test_address_can_be_unbound_from_its_session(mine: Transaction) -> None:
    mine.bindings.bind("key", ONE, HOME)
    assert mine.bindings.unbind("key")
    assert not mine.bindings.unbind("key")
    assert mine.bindings.get("key") is None
    assert mine.bindings.of_session(ONE) == []


def test_session_has_the_audience_of_its_bound_group(mine: Transaction) -> None:
    session = mine.sessions.create(NewSession(source="cli"))

    def audience(key: str, address: Address) -> str:
        mine.bindings.bind(key, session.id, address)
        found = mine.sessions.get(session.id)
        assert found is not None
        return found.audience

    assert audience("group", HOME) == "telegram/1"
    assert audience("private", Address("telegram", "ana")) == "telegram/1"
    mine.bindings.unbind("group")
    assert audience("private", Address("telegram", "ana")) == ""
