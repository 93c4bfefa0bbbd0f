"""Admission of updates on a real store: access, pairing, participants and resets."""

import re
from datetime import timedelta

import pytest
from msgspec import structs
from tests.gateway.incoming_messages import ANN, BEN, incoming_message

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


class Admission:
    """Admission of one network with settings that can change."""

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
def admission(database: Database) -> Admission:
    return Admission(database, OWNED)


def test_stranger_in_a_private_chat_gets_one_code_and_is_admitted_once_approved(
    admission: Admission, database: Database
) -> None:
    refusal = admission.authorize(incoming_message(BEN))
    assert isinstance(refusal, Refusal)
    found = re.search(r"pairing approve telegram (\w+)", refusal.text)
    assert found
    assert admission.authorize(incoming_message(BEN, "Please!")) == Ignored()
    assert database.write(lambda tx: approve_code(tx, "telegram", found[1])) is not None
    assert admission.authorize(incoming_message(BEN)) == Participant(
        "agent:main:telegram:private:2", "telegram:2", "", is_owner=False, ids=("2",)
    )
    database.write(lambda tx: tx.pairing.revoke("telegram", "2"))
    assert isinstance(admission.authorize(incoming_message(BEN)), Refusal)


def test_reaction_of_a_stranger_gets_no_code(admission: Admission) -> None:
    assert admission.authorize(structs.replace(incoming_message(BEN, ""), reaction="👍")) == Ignored()
    assert isinstance(admission.authorize(incoming_message(BEN)), Refusal)


def test_stranger_in_a_group_is_ignored_without_a_code(admission: Admission, database: Database) -> None:
    assert admission.authorize(incoming_message(BEN, chat="-100", kind="group")) == Ignored()
    assert database.read(lambda tx: (tx.pairing.waiting(), list_channels(tx))) == ([], [])


def test_owner_in_a_private_chat_shares_the_memory_of_the_terminal(admission: Admission) -> None:
    assert admission.authorize(incoming_message(ANN)) == Participant(
        "agent:main:telegram:private:1", "", "", is_owner=True, ids=("1",)
    )


def test_each_member_of_a_group_has_their_own_session_visible_to_the_group(admission: Admission) -> None:
    admission.settings = Settings(access=AccessSettings(chats=("telegram:-100",)))
    ben = admission.authorize(incoming_message(BEN, chat="-100", kind="group"))
    assert ben == Participant(
        "agent:main:telegram:group:-100:2", "telegram:2", "telegram/-100", is_owner=False, ids=("2",)
    )
    assert admission.authorize(incoming_message(ANN, chat="-100", kind="group")) != ben


def test_shared_group_session_is_owned_by_the_chat(admission: Admission) -> None:
    together = {"telegram": ChatNetworkSettings(group_sessions_per_user=False)}
    admission.settings = structs.replace(OWNED, platforms=together)
    shared = Participant("agent:main:telegram:group:-100", "telegram/-100", "telegram/-100", is_owner=True, ids=("1",))
    assert admission.authorize(incoming_message(ANN, chat="-100", kind="group")) == shared


def test_unaddressed_message_is_ignored_but_its_chat_is_recorded(admission: Admission, database: Database) -> None:
    overheard = incoming_message(ANN, chat="-100", kind="group", addressed=False)
    assert admission.authorize(structs.replace(overheard, chat_name="Family")) == Ignored()
    assert [one.name for one in database.read(lambda tx: list_channels(tx, "telegram"))] == ["Family"]


def test_ids_of_one_person_are_admitted_as_one_person(admission: Admission, database: Database) -> None:
    database.write(lambda tx: link_user_ids(tx, "telegram", "2", "3"))
    admission.settings = Settings(
        access=AccessSettings(allowed=("ben",)), people={"ben": PersonSettings(ids=("telegram:2",))}
    )
    second = structs.replace(BEN, id="3")
    assert admission.authorize(incoming_message(second)) == admission.authorize(incoming_message(BEN))
    assert admission.authorize(incoming_message(second)) == Participant(
        "agent:main:telegram:private:2", "ben", "", is_owner=False, ids=("2", "3")
    )


@pytest.mark.parametrize(("first", "other"), [("2", "US.3"), ("US.3", "2")])
def test_sender_with_a_phone_number_and_an_alias_has_one_session(
    admission: Admission, database: Database, first: str, other: str
) -> None:
    """The session is found under either id, whichever was used first or is in the settings."""
    admission.settings = Settings(access=AccessSettings(allowed=(f"telegram:{first}",)))
    for sender in (
        structs.replace(BEN, id=first),
        structs.replace(BEN, id="2", aliases=("US.3",)),
        structs.replace(BEN, id=other),
    ):
        assert isinstance(
            admission.admit(structs.replace(incoming_message(sender, chat=sender.id), external_id=new_id())), Admitted
        )
    assert len({one.session_id for one in database.read(lambda tx: tx.inbox.list_unsettled())}) == 1


def test_changed_access_settings_apply_to_the_next_message(admission: Admission) -> None:
    assert isinstance(admission.authorize(incoming_message(ANN)), Participant)
    admission.settings = Settings(access=AccessSettings(blocked=("telegram:1",)))
    assert admission.authorize(incoming_message(ANN)) == Ignored()


def test_a_channel_post_is_admitted_by_its_chat(admission: Admission) -> None:
    admission.settings = Settings(access=AccessSettings(chats=("telegram:-100",)))
    channel = admission.authorize(incoming_message(structs.replace(BEN, id=""), chat="-100", kind="channel"))
    assert channel == Participant(
        "agent:main:telegram:channel:-100", "telegram/-100", "telegram/-100", is_owner=False, ids=("",)
    )


def create_session(database: Database, clock: SettableClock, *, ago: timedelta, has_message: bool = True) -> SessionId:
    """Return a session that was last active this long ago; the clock is at noon afterwards."""
    clock.advance(-ago)
    hello = Message(role="user", parts=(Text("Hello"),), at=clock.now())

    def begin(session_id: SessionId) -> None:
        database.write(lambda tx: tx.messages.append(session_id, [hello]))

    session_id = database.write(lambda tx: tx.sessions.create(NewSession(source="telegram"))).id
    if has_message:
        begin(session_id)
    clock.advance(ago)
    return session_id


def test_idle_session_is_reset_by_the_policy_of_the_network(
    admission: Admission, database: Database, clock: SettableClock
) -> None:
    silent = create_session(database, clock, ago=timedelta(hours=2))
    assert admission.find_reset(silent) is None
    admission.settings = Settings(platforms={"telegram": ChatNetworkSettings(reset="idle", reset_idle_minutes=120)})
    assert admission.find_reset(silent) == "idle"
    assert admission.find_reset(create_session(database, clock, ago=timedelta(minutes=119))) is None
    assert admission.find_reset(create_session(database, clock, ago=timedelta(days=9), has_message=False)) is None
    assert admission.find_reset(silent, bound=timedelta(minutes=1)) is None


def test_daily_reset_hour_is_in_the_configured_time_zone(
    admission: Admission, database: Database, clock: SettableClock
) -> None:
    daily = {"telegram": ChatNetworkSettings(reset="daily", reset_hour=13)}
    silent = create_session(database, clock, ago=timedelta(minutes=30))
    admission.settings = Settings(platforms=daily, cli=CliSettings(time_zone="Europe/Berlin"))
    assert admission.find_reset(silent) == "daily"
    admission.settings = Settings(platforms=daily, cli=CliSettings(time_zone="America/New_York"))
    assert admission.find_reset(silent) is None


def test_session_with_a_pending_message_is_not_reset(
    admission: Admission, database: Database, clock: SettableClock
) -> None:
    admission.settings = Settings(platforms={"telegram": ChatNetworkSettings(reset="idle", reset_idle_minutes=1)})
    silent = create_session(database, clock, ago=timedelta(hours=2))
    waiting = Arrival(session_id=silent, source="telegram", external_id="1", payload="{}")
    item = database.write(lambda tx: tx.inbox.add(waiting))
    assert item is not None
    assert admission.find_reset(silent) is None
    database.write(lambda tx: tx.inbox.settle([item.id]))
    assert admission.find_reset(silent) == "idle"


def session_owned_by(database: Database, owner: str) -> SessionId:
    return database.write(lambda tx: tx.sessions.create(NewSession(source="telegram", owner=owner))).id


def test_sender_without_an_id_is_a_guest_whose_session_the_chat_owns(database: Database) -> None:
    admission = Admission(database, Settings(access=AccessSettings(everyone=True, owners=("telegram:1",))))
    owners = []
    for chat in ("77", "78"):
        address = structs.replace(incoming_message(BEN).address, chat_id=chat, user_id="")
        guest = admission.authorize(structs.replace(incoming_message(BEN), address=address, sender=Sender("")))
        assert isinstance(guest, Participant)
        assert not guest.is_owner
        owners.append(guest.owner)
    assert owners == ["telegram/77", "telegram/78"]


def test_session_of_another_person_is_not_continued_in_a_private_chat(database: Database) -> None:
    admission = Admission(database, Settings(access=AccessSettings(everyone=True, owners=("telegram:1",))))
    for owner, anns, bens in (("", True, False), ("telegram:2", False, True), ("telegram:3", False, False)):
        session_id = session_owned_by(database, owner)
        assert admission.continues(session_id, incoming_message(ANN)) == anns
        assert admission.continues(session_id, incoming_message(BEN)) == bens


def test_person_named_in_settings_later_owns_their_earlier_sessions(database: Database) -> None:
    admission = Admission(database, Settings(access=AccessSettings(everyone=True)))
    one, two = session_owned_by(database, "telegram:2"), session_owned_by(database, "telegram:2")
    admission.settings = Settings(
        access=AccessSettings(everyone=True), people={"ben": PersonSettings(ids=("telegram:2",))}
    )
    assert admission.continues(one, incoming_message(BEN))
    found = database.read(lambda tx: tx.sessions.find(SessionFilter(owner="ben")))
    assert {session.id for session in found} == {one, two}
