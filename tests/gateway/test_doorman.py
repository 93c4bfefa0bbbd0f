"""The door of one network, with the store behind it."""

import re
from datetime import timedelta

import pytest
from msgspec import structs
from tests.gateway.arrivals import ANN, BEN, said

from talaria.contracts.platform import Incoming, Sender
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.inbox import Arrival
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.core.wording import find_zone
from talaria.gateway.doorman import Doorman, Guest
from talaria.sessions.aliases import learn_same
from talaria.sessions.channels import list_channels
from talaria.sessions.pairing import approve_code
from talaria.settings.chats import Access, ChatNetwork, Person
from talaria.settings.model import Cli, Settings
from talaria.testing.clock import NOON, SettableClock

OWNED = Settings(access=Access(owners=("telegram:1",)))


class Door:
    """A door whose settings can change."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.settings = settings
        self._database = database

    def admit(self, incoming: Incoming) -> Guest | str:
        return self._database.write(lambda tx: self._doorman().admit(tx, incoming))

    def goes_on(self, session_id: SessionId, incoming: Incoming) -> bool:
        def work(tx: Transaction) -> bool:
            session, guest = tx.sessions.get(session_id), self._doorman().admit(tx, incoming)
            assert session is not None
            assert isinstance(guest, Guest)
            return self._doorman().goes_on(tx, session, guest, incoming)

        return self._database.write(work)

    def begins_anew(self, session_id: SessionId, brought: timedelta = timedelta(days=99)) -> str:
        binding = Binding("k", session_id, Address("telegram", "1"), NOON - brought)
        return self._database.write(lambda tx: self._doorman().begins_anew(tx, binding, NOON))

    def _doorman(self) -> Doorman:
        return Doorman(self.settings, "telegram", (), find_zone(self.settings.cli.time_zone))


@pytest.fixture
def door(database: Database) -> Door:
    return Door(database, OWNED)


def test_a_stranger_gets_one_code_in_private_and_is_let_in_with_it(door: Door, database: Database) -> None:
    words = door.admit(said(BEN))
    assert isinstance(words, str)
    found = re.search(r"pairing approve telegram (\w+)", words)
    assert found
    assert door.admit(said(BEN, "Please!")) == ""
    assert database.write(lambda tx: approve_code(tx, "telegram", found[1])) is not None
    assert door.admit(said(BEN)) == Guest(
        "agent:main:telegram:private:2", "telegram:2", "", is_owner=False, commands=()
    )
    database.write(lambda tx: tx.pairing.revoke("telegram", "2"))
    assert isinstance(door.admit(said(BEN)), str)


def test_a_stranger_who_only_marks_a_message_gets_no_code(door: Door) -> None:
    assert door.admit(structs.replace(said(BEN, ""), reaction="👍")) == ""
    assert door.admit(said(BEN)) != ""


def test_a_stranger_in_a_group_gets_neither_a_code_nor_an_answer(door: Door, database: Database) -> None:
    assert door.admit(said(BEN, chat="-100", kind="group")) == ""
    assert database.read(lambda tx: (tx.pairing.waiting(), list_channels(tx))) == ([], [])


def test_the_memory_of_the_terminal_is_the_owners_in_private_chats_too(door: Door) -> None:
    assert door.admit(said(ANN)) == Guest("agent:main:telegram:private:1", "", "", is_owner=True, commands=())


def test_in_a_group_each_has_a_conversation_of_their_own_before_the_others(door: Door) -> None:
    door.settings = Settings(access=Access(chats=("telegram:-100",)))
    ben = door.admit(said(BEN, chat="-100", kind="group"))
    assert ben == Guest("agent:main:telegram:group:-100:2", "telegram:2", "telegram/-100", is_owner=False, commands=())
    assert door.admit(said(ANN, chat="-100", kind="group")) != ben


def test_what_is_shared_is_nobodys_memory_not_even_the_owners(door: Door) -> None:
    together = {"telegram": ChatNetwork(group_sessions_per_user=False)}
    door.settings = structs.replace(OWNED, platforms=together)
    shared = Guest("agent:main:telegram:group:-100", "telegram/-100", "telegram/-100", is_owner=True, commands=())
    assert door.admit(said(ANN, chat="-100", kind="group")) == shared


def test_what_is_not_meant_for_us_is_not_answered_but_the_chat_is_known(door: Door, database: Database) -> None:
    overheard = said(ANN, chat="-100", kind="group", addressed=False)
    assert door.admit(structs.replace(overheard, chat_name="Family")) == ""
    assert [one.name for one in database.read(lambda tx: list_channels(tx, "telegram"))] == ["Family"]


def test_ids_that_are_one_person_are_let_in_and_speak_as_one(door: Door, database: Database) -> None:
    database.write(lambda tx: learn_same(tx, "telegram", "2", "3"))
    door.settings = Settings(access=Access(allowed=("ben",)), people={"ben": Person(ids=("telegram:2",))})
    second = structs.replace(BEN, id="3")
    assert door.admit(said(second)) == door.admit(said(BEN))
    assert door.admit(said(second)) == Guest("agent:main:telegram:private:2", "ben", "", is_owner=False, commands=())


def test_the_settings_count_as_they_are_at_the_moment(door: Door) -> None:
    assert isinstance(door.admit(said(ANN)), Guest)
    door.settings = Settings(access=Access(blocked=("telegram:1",)))
    assert door.admit(said(ANN)) == ""


def test_a_channel_that_speaks_for_itself_is_let_in_as_a_chat(door: Door) -> None:
    door.settings = Settings(access=Access(chats=("telegram:-100",)))
    channel = door.admit(said(structs.replace(BEN, id=""), chat="-100", kind="channel"))
    assert channel == Guest(
        "agent:main:telegram:channel:-100", "telegram/-100", "telegram/-100", is_owner=False, commands=()
    )


def conversation(database: Database, clock: SettableClock, *, ago: timedelta, spoken: bool = True) -> SessionId:
    """Return a conversation that was used last so long ago; the clock stands at noon then."""
    clock.advance(-ago)
    hello = Message(role="user", parts=(Text("Hello"),), at=clock.now())

    def begin(session_id: SessionId) -> None:
        database.write(lambda tx: tx.messages.append(session_id, [hello]))

    made = database.write(lambda tx: tx.sessions.create(NewSession(source="telegram"))).id
    if spoken:
        begin(made)
    clock.advance(ago)
    return made


def test_a_conversation_begins_anew_when_the_network_says_so(
    door: Door, database: Database, clock: SettableClock
) -> None:
    silent = conversation(database, clock, ago=timedelta(hours=2))
    assert door.begins_anew(silent) == ""
    door.settings = Settings(platforms={"telegram": ChatNetwork(reset="idle", reset_idle_minutes=120)})
    assert door.begins_anew(silent).startswith("Nothing was said here for 2 hours")
    assert door.begins_anew(conversation(database, clock, ago=timedelta(minutes=119))) == ""
    assert door.begins_anew(conversation(database, clock, ago=timedelta(days=9), spoken=False)) == ""
    assert door.begins_anew(SessionId("gone")) == ""
    assert door.begins_anew(silent, brought=timedelta(minutes=1)) == ""


def test_the_hour_is_one_of_the_persons_zone(door: Door, database: Database, clock: SettableClock) -> None:
    daily = {"telegram": ChatNetwork(reset="daily", reset_hour=13)}
    silent = conversation(database, clock, ago=timedelta(minutes=30))
    door.settings = Settings(platforms=daily, cli=Cli(time_zone="Europe/Berlin"))
    assert door.begins_anew(silent).startswith("A new day has begun")
    door.settings = Settings(platforms=daily, cli=Cli(time_zone="America/New_York"))
    assert door.begins_anew(silent) == ""


def test_what_is_still_worked_at_goes_on(door: Door, database: Database, clock: SettableClock) -> None:
    door.settings = Settings(platforms={"telegram": ChatNetwork(reset="idle", reset_idle_minutes=1)})
    silent = conversation(database, clock, ago=timedelta(hours=2))
    waiting = Arrival(session_id=silent, source="telegram", external_id="1", payload="{}")
    item = database.write(lambda tx: tx.inbox.add(waiting))
    assert item is not None
    assert door.begins_anew(silent) == ""
    database.write(lambda tx: tx.inbox.settle([item.id]))
    assert door.begins_anew(silent) != ""


def begun(database: Database, owner: str) -> SessionId:
    return database.write(lambda tx: tx.sessions.create(NewSession(source="telegram", owner=owner))).id


def test_who_has_no_id_owns_nothing_but_the_chat(database: Database) -> None:
    door = Door(database, Settings(access=Access(everyone=True, owners=("telegram:1",))))
    owners = []
    for chat in ("77", "78"):
        address = structs.replace(said(BEN).address, chat_id=chat, user_id="")
        guest = door.admit(structs.replace(said(BEN), address=address, sender=Sender("")))
        assert isinstance(guest, Guest)
        assert not guest.is_owner
        owners.append(guest.owner)
    assert owners == ["telegram/77", "telegram/78"]


def test_another_person_in_a_private_chat_gets_a_conversation_of_their_own(database: Database) -> None:
    door = Door(database, Settings(access=Access(everyone=True, owners=("telegram:1",))))
    for owner, anns, bens in (("", True, False), ("telegram:2", False, True), ("telegram:3", False, False)):
        session_id = begun(database, owner)
        assert door.goes_on(session_id, said(ANN)) == anns
        assert door.goes_on(session_id, said(BEN)) == bens


def test_who_is_named_later_keeps_what_was_theirs(database: Database) -> None:
    door = Door(database, Settings(access=Access(everyone=True)))
    one, two = begun(database, "telegram:2"), begun(database, "telegram:2")
    door.settings = Settings(access=Access(everyone=True), people={"ben": Person(ids=("telegram:2",))})
    assert door.goes_on(one, said(BEN))
    found = database.read(lambda tx: tx.sessions.find(SessionFilter(owner="ben")))
    assert {session.id for session in found} == {one, two}
