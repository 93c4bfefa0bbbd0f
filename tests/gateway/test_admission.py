"""Admission of updates on a real store: access, pairing, participants and resets."""

import re
from datetime import timedelta

import pytest
from msgspec import structs
from tests.gateway.incoming_messages import ANN, BEN, said

from talaria.access.pairing import approve_code
from talaria.contracts.platform import Incoming, Sender
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.queues import Arrival
from talaria.contracts.stores.sessions import Binding, NewSession, SessionFilter
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, new_id, new_worker_id
from talaria.core.messages import Message, Text
from talaria.gateway.admission import (
    AdmissionRules,
    Admitted,
    Ignored,
    Outcome,
    Participant,
    Refusal,
    admit,
    authorize,
    make_admission_rules,
)
from talaria.gateway.session_reset import find_due_reset
from talaria.sessions.chat_directory import list_channels
from talaria.sessions.keys import link_user_ids
from talaria.settings.model import CliSettings, Settings
from talaria.settings.sections.chats import AccessSettings, ChatNetworkSettings, PersonSettings
from talaria.testing.clock import NOON, SettableClock

WORKER = new_worker_id()
OWNED = Settings(access=AccessSettings(owners=("telegram:1",)))


class Door:
    """The admission of one network, whose settings can change."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.settings = settings
        self._database = database

    @property
    def rules(self) -> AdmissionRules:
        return make_admission_rules(self.settings, "telegram", WORKER)

    def authorize(self, update: Incoming) -> Participant | Refusal | Ignored:
        return self._database.write(lambda tx: authorize(tx, update, self.rules))

    def admit(self, update: Incoming) -> Outcome:
        return self._database.write(lambda tx: admit(tx, update, self.rules))

    def continues(self, session_id: SessionId, update: Incoming) -> bool:
        """Bind a session to the chat of a sender, and return whether their message continues it."""
        participant = self.authorize(update)
        assert isinstance(participant, Participant)
        self._database.write(lambda tx: tx.bindings.bind(participant.key, session_id, update.address))
        admitted = self.admit(structs.replace(update, external_id=new_id()))
        assert isinstance(admitted, Admitted)
        return admitted.session_id == session_id

    def find_reset(self, session_id: SessionId, bound: timedelta = timedelta(days=99)) -> str | None:
        binding, rules = Binding("k", session_id, Address("telegram", "1"), NOON - bound), self.rules

        def find(tx: Transaction) -> str | None:
            session = tx.sessions.get(session_id)
            assert session is not None
            return find_due_reset(tx, session, binding, rules.reset, NOON, rules.zone)

        return self._database.read(find)


@pytest.fixture
def door(database: Database) -> Door:
    return Door(database, OWNED)


def test_a_stranger_gets_one_code_in_private_and_is_admitted_with_it(door: Door, database: Database) -> None:
    refusal = door.authorize(said(BEN))
    assert isinstance(refusal, Refusal)
    found = re.search(r"pairing approve telegram (\w+)", refusal.text)
    assert found
    assert door.authorize(said(BEN, "Please!")) == Ignored()
    assert database.write(lambda tx: approve_code(tx, "telegram", found[1])) is not None
    assert door.authorize(said(BEN)) == Participant(
        "agent:main:telegram:private:2", "telegram:2", "", is_owner=False, ids=("2",)
    )
    database.write(lambda tx: tx.pairing.revoke("telegram", "2"))
    assert isinstance(door.authorize(said(BEN)), Refusal)


def test_a_stranger_who_only_marks_a_message_gets_no_code(door: Door) -> None:
    assert door.authorize(structs.replace(said(BEN, ""), reaction="👍")) == Ignored()
    assert isinstance(door.authorize(said(BEN)), Refusal)


def test_a_stranger_in_a_group_gets_neither_a_code_nor_an_answer(door: Door, database: Database) -> None:
    assert door.authorize(said(BEN, chat="-100", kind="group")) == Ignored()
    assert database.read(lambda tx: (tx.pairing.waiting(), list_channels(tx))) == ([], [])


def test_the_memory_of_the_terminal_is_the_owners_in_private_chats_too(door: Door) -> None:
    assert door.authorize(said(ANN)) == Participant("agent:main:telegram:private:1", "", "", is_owner=True, ids=("1",))


def test_in_a_group_each_has_a_conversation_of_their_own_before_the_others(door: Door) -> None:
    door.settings = Settings(access=AccessSettings(chats=("telegram:-100",)))
    ben = door.authorize(said(BEN, chat="-100", kind="group"))
    assert ben == Participant(
        "agent:main:telegram:group:-100:2", "telegram:2", "telegram/-100", is_owner=False, ids=("2",)
    )
    assert door.authorize(said(ANN, chat="-100", kind="group")) != ben


def test_a_shared_chat_belongs_to_no_persons_memory(door: Door) -> None:
    together = {"telegram": ChatNetworkSettings(group_sessions_per_user=False)}
    door.settings = structs.replace(OWNED, platforms=together)
    shared = Participant("agent:main:telegram:group:-100", "telegram/-100", "telegram/-100", is_owner=True, ids=("1",))
    assert door.authorize(said(ANN, chat="-100", kind="group")) == shared


def test_what_is_not_meant_for_us_is_not_answered_but_the_chat_is_known(door: Door, database: Database) -> None:
    overheard = said(ANN, chat="-100", kind="group", addressed=False)
    assert door.authorize(structs.replace(overheard, chat_name="Family")) == Ignored()
    assert [one.name for one in database.read(lambda tx: list_channels(tx, "telegram"))] == ["Family"]


def test_ids_of_one_person_are_admitted_as_one_person(door: Door, database: Database) -> None:
    database.write(lambda tx: link_user_ids(tx, "telegram", "2", "3"))
    door.settings = Settings(
        access=AccessSettings(allowed=("ben",)), people={"ben": PersonSettings(ids=("telegram:2",))}
    )
    second = structs.replace(BEN, id="3")
    assert door.authorize(said(second)) == door.authorize(said(BEN))
    assert door.authorize(said(second)) == Participant(
        "agent:main:telegram:private:2", "ben", "", is_owner=False, ids=("2", "3")
    )


@pytest.mark.parametrize(("first", "other"), [("2", "US.3"), ("US.3", "2")])
def test_a_person_with_a_phone_number_and_an_alias_has_one_conversation(
    door: Door, database: Database, first: str, other: str
) -> None:
    """Whichever id they use first keeps the conversation, and the settings may name either."""
    door.settings = Settings(access=AccessSettings(allowed=(f"telegram:{first}",)))
    for sender in (
        structs.replace(BEN, id=first),
        structs.replace(BEN, id="2", aliases=("US.3",)),
        structs.replace(BEN, id=other),
    ):
        assert isinstance(door.admit(structs.replace(said(sender, chat=sender.id), external_id=new_id())), Admitted)
    assert len({one.session_id for one in database.read(lambda tx: tx.inbox.unsettled())}) == 1


def test_the_settings_count_as_they_are_at_the_moment(door: Door) -> None:
    assert isinstance(door.authorize(said(ANN)), Participant)
    door.settings = Settings(access=AccessSettings(blocked=("telegram:1",)))
    assert door.authorize(said(ANN)) == Ignored()


def test_a_channel_post_is_admitted_by_its_chat(door: Door) -> None:
    door.settings = Settings(access=AccessSettings(chats=("telegram:-100",)))
    channel = door.authorize(said(structs.replace(BEN, id=""), chat="-100", kind="channel"))
    assert channel == Participant(
        "agent:main:telegram:channel:-100", "telegram/-100", "telegram/-100", is_owner=False, ids=("",)
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


def test_a_conversation_starts_again_when_the_network_says_so(
    door: Door, database: Database, clock: SettableClock
) -> None:
    silent = conversation(database, clock, ago=timedelta(hours=2))
    assert door.find_reset(silent) is None
    door.settings = Settings(platforms={"telegram": ChatNetworkSettings(reset="idle", reset_idle_minutes=120)})
    assert door.find_reset(silent) == "idle"
    assert door.find_reset(conversation(database, clock, ago=timedelta(minutes=119))) is None
    assert door.find_reset(conversation(database, clock, ago=timedelta(days=9), spoken=False)) is None
    assert door.find_reset(silent, bound=timedelta(minutes=1)) is None


def test_the_hour_is_one_of_the_persons_zone(door: Door, database: Database, clock: SettableClock) -> None:
    daily = {"telegram": ChatNetworkSettings(reset="daily", reset_hour=13)}
    silent = conversation(database, clock, ago=timedelta(minutes=30))
    door.settings = Settings(platforms=daily, cli=CliSettings(time_zone="Europe/Berlin"))
    assert door.find_reset(silent) == "daily"
    door.settings = Settings(platforms=daily, cli=CliSettings(time_zone="America/New_York"))
    assert door.find_reset(silent) is None


def test_what_is_still_worked_at_continues(door: Door, database: Database, clock: SettableClock) -> None:
    door.settings = Settings(platforms={"telegram": ChatNetworkSettings(reset="idle", reset_idle_minutes=1)})
    silent = conversation(database, clock, ago=timedelta(hours=2))
    waiting = Arrival(session_id=silent, source="telegram", external_id="1", payload="{}")
    item = database.write(lambda tx: tx.inbox.add(waiting))
    assert item is not None
    assert door.find_reset(silent) is None
    database.write(lambda tx: tx.inbox.settle([item.id]))
    assert door.find_reset(silent) == "idle"


def begun(database: Database, owner: str) -> SessionId:
    return database.write(lambda tx: tx.sessions.create(NewSession(source="telegram", owner=owner))).id


def test_who_has_no_id_owns_nothing_but_the_chat(database: Database) -> None:
    door = Door(database, Settings(access=AccessSettings(everyone=True, owners=("telegram:1",))))
    owners = []
    for chat in ("77", "78"):
        address = structs.replace(said(BEN).address, chat_id=chat, user_id="")
        guest = door.authorize(structs.replace(said(BEN), address=address, sender=Sender("")))
        assert isinstance(guest, Participant)
        assert not guest.is_owner
        owners.append(guest.owner)
    assert owners == ["telegram/77", "telegram/78"]


def test_another_person_in_a_private_chat_gets_a_conversation_of_their_own(database: Database) -> None:
    door = Door(database, Settings(access=AccessSettings(everyone=True, owners=("telegram:1",))))
    for owner, anns, bens in (("", True, False), ("telegram:2", False, True), ("telegram:3", False, False)):
        session_id = begun(database, owner)
        assert door.continues(session_id, said(ANN)) == anns
        assert door.continues(session_id, said(BEN)) == bens


def test_who_is_named_later_keeps_what_was_theirs(database: Database) -> None:
    door = Door(database, Settings(access=AccessSettings(everyone=True)))
    one, two = begun(database, "telegram:2"), begun(database, "telegram:2")
    door.settings = Settings(access=AccessSettings(everyone=True), people={"ben": PersonSettings(ids=("telegram:2",))})
    assert door.continues(one, said(BEN))
    found = database.read(lambda tx: tx.sessions.find(SessionFilter(owner="ben")))
    assert {session.id for session in found} == {one, two}
