"""Migration of a chat to another id: its sessions, its name and its role as home chat move along."""

import pytest
from msgspec import structs

from talaria.contracts.platform import Incoming, Sender
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, SessionChanges
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.gateway.admission import migrate_chat
from talaria.sessions.chat_directory import HomeChat, list_channels, read_home, record_channel, write_home
from talaria.sessions.keys import build_session_key, resolve_ownership
from talaria.testing.clock import NOON

OLD, NEW = Address("telegram", "-40", "group"), Address("telegram", "-100", "group")
MOVED = Incoming(
    external_id="1", address=NEW, sender=Sender("-40"), at=NOON, chat_name="Family", addressed=False, formerly="-40"
)


def create_session(tx: Transaction, address: Address, *, shared: bool = False) -> SessionId:
    ownership = resolve_ownership(address, "telegram:7", shared=shared)
    session = tx.sessions.create(NewSession(source="telegram", owner=ownership.owner, audience=ownership.audience))
    tx.bindings.bind(build_session_key(address), session.id, structs.replace(address, user_id=""))
    return session.id


def test_every_session_of_a_migrated_chat_is_bound_to_the_new_id(database: Database, mine: Transaction) -> None:
    addresses = [OLD, structs.replace(OLD, user_id="7"), structs.replace(OLD, chat_type="thread", thread_id="3")]
    begun = database.write(lambda tx: [create_session(tx, address) for address in addresses])
    assert database.write(lambda tx: migrate_chat(tx, MOVED)) == 3
    for address, session_id in zip(addresses, begun, strict=True):
        moved = mine.bindings.get(build_session_key(structs.replace(address, chat_id="-100")))
        assert moved is not None
        assert (moved.session_id, moved.address.chat_id) == (session_id, "-100")
        assert moved.address.thread_id == address.thread_id
        assert mine.bindings.get(build_session_key(address)) is None


def test_shared_session_of_a_migrated_chat_is_owned_by_the_new_id(database: Database, mine: Transaction) -> None:
    session_id = database.write(lambda tx: create_session(tx, OLD, shared=True))
    database.write(lambda tx: migrate_chat(tx, MOVED))
    session = mine.sessions.get(session_id)
    assert session is not None
    assert (session.owner, session.audience) == ("telegram/-100", "telegram/-100")


def test_chat_with_the_same_id_prefix_is_not_migrated(database: Database, mine: Transaction) -> None:
    address = Address("telegram", "-401", "group")
    database.write(lambda tx: create_session(tx, address))
    assert database.write(lambda tx: migrate_chat(tx, MOVED)) == 0
    assert mine.bindings.get(build_session_key(address)) is not None


def test_session_already_bound_to_the_new_chat_is_not_replaced(database: Database, mine: Transaction) -> None:
    database.write(lambda tx: create_session(tx, OLD))
    newer = database.write(lambda tx: create_session(tx, NEW))
    database.write(lambda tx: migrate_chat(tx, MOVED))
    bound = mine.bindings.get(build_session_key(NEW))
    assert bound is not None
    assert bound.session_id == newer
    assert mine.bindings.get(build_session_key(OLD)) is None


def test_a_repeated_migration_notice_moves_the_chat_once(database: Database, mine: Transaction) -> None:
    session_id = database.write(lambda tx: create_session(tx, OLD))
    assert database.write(lambda tx: migrate_chat(tx, MOVED)) == 1
    mine.sessions.update(session_id, SessionChanges(title="kept"))
    assert database.write(lambda tx: migrate_chat(tx, MOVED)) == 0
    assert [binding.session_id for binding in mine.bindings.of_session(session_id)] == [session_id]


@pytest.mark.parametrize("home", [OLD, Address("telegram", "7")])
def test_home_chat_moves_only_if_it_is_the_migrated_chat(database: Database, mine: Transaction, home: Address) -> None:
    database.write(lambda tx: write_home(tx, HomeChat(home, "Family")))
    database.write(lambda tx: record_channel(tx, OLD, "Family", NOON))
    database.write(lambda tx: migrate_chat(tx, MOVED))
    assert database.read(lambda tx: read_home(tx, "telegram")) == HomeChat(NEW if home == OLD else home, "Family")
    channels = database.read(lambda tx: list_channels(tx, "telegram"))
    assert [(one.address.chat_id, one.name) for one in channels] == [("-100", "Family")]
