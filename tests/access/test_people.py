"""One person with several ids."""

from talaria.access.policy import People
from talaria.contracts.store import Database
from talaria.core.addresses import Address
from talaria.sessions.keys import build_session_key, canonical_address, link_user_ids, list_user_ids
from talaria.settings.sections.chats import PersonSettings

PHONE, LID = "491701234567", "881122@lid"


def test_a_named_person_owns_things_on_every_network() -> None:
    people = People({"ann": PersonSettings(ids=("telegram:1", "matrix:@ann:example.org"))})
    assert people.person("telegram", ("1",)) == people.person("matrix", ("@ann:example.org",)) == "ann"
    assert people.person("telegram", ("2",)) == "telegram:2"
    assert people.person("matrix", ("1",)) == "matrix:1"
    assert people.names("telegram", ("1",)) == {"telegram:1", "ann"}
    assert people.names("telegram", ("2", "")) == {"telegram:2"}


def test_what_a_network_tells_makes_two_ids_one_person(database: Database, other: Database) -> None:
    assert database.read(lambda tx: list_user_ids(tx, "whatsapp", LID)) == (LID,)
    database.write(lambda tx: link_user_ids(tx, "whatsapp", PHONE, LID))
    for one in (PHONE, LID):
        assert other.read(lambda tx, one=one: list_user_ids(tx, "whatsapp", one)) == (PHONE, LID)  # type: ignore[misc]
    assert other.read(lambda tx: list_user_ids(tx, "signal", PHONE)) == (PHONE,)
    people = People({"ann": PersonSettings(ids=(f"whatsapp:{PHONE}",))})
    assert people.person("whatsapp", (PHONE, LID)) == "ann"
    assert People({}).person("whatsapp", (PHONE, LID)) == f"whatsapp:{PHONE}"


def test_an_id_linked_to_a_person_stays_linked(database: Database) -> None:
    def learn(known: str, another: str) -> None:
        database.write(lambda tx: link_user_ids(tx, "whatsapp", known, another))

    learn("a", "b")
    learn("c", "d")
    learn("b", "d")
    learn("d", "a")
    learn("e", "e")
    found = database.read(lambda tx: {one: list_user_ids(tx, "whatsapp", one) for one in "abcde"})
    assert found == dict.fromkeys("abcd", ("a", "b", "c", "d")) | {"e": ("e",)}


def test_a_private_chat_is_one_place_whichever_id_it_has() -> None:
    places = [Address("whatsapp", one, user_id=one) for one in (PHONE, LID)]
    keys = {build_session_key(canonical_address(place, (PHONE, LID))) for place in places}
    assert keys == {f"agent:main:whatsapp:private:{PHONE}"}
    group = Address("whatsapp", "group-1", "group", user_id=LID)
    assert build_session_key(canonical_address(group, (PHONE, LID))).endswith(f":group-1:{PHONE}")
