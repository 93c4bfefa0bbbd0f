"""People with several ids."""

from talaria.access.policy import People
from talaria.contracts.store import Database
from talaria.core.addresses import Address
from talaria.sessions.keys import build_session_key, canonical_address, link_user_ids, list_user_ids
from talaria.settings.sections.chats import PersonSettings

PHONE, LID = "491701234567", "881122@lid"


def test_named_person_is_recognised_on_every_network() -> None:
    people = People({"ann": PersonSettings(ids=("telegram:1", "matrix:@ann:example.org"))})
    assert people.person("telegram", ("1",)) == people.person("matrix", ("@ann:example.org",)) == "ann"
    assert people.person("telegram", ("2",)) == "telegram:2"
    assert people.person("matrix", ("1",)) == "matrix:1"
    assert people.names("telegram", ("1",)) == {"telegram:1", "ann"}
    assert people.names("telegram", ("2", "")) == {"telegram:2"}


def test_linked_ids_belong_to_one_person(database: Database, other: Database) -> None:
    assert database.read(lambda tx: list_user_ids(tx, "whatsapp", LID)) == (LID,)
    database.write(lambda tx: link_user_ids(tx, "whatsapp", PHONE, LID))
    for one in (PHONE, LID):
        assert other.read(lambda tx, one=one: list_user_ids(tx, "whatsapp", one)) == (PHONE, LID)  # type: ignore[misc]
    assert other.read(lambda tx: list_user_ids(tx, "signal", PHONE)) == (PHONE,)
    people = People({"ann": PersonSettings(ids=(f"whatsapp:{PHONE}",))})
    assert people.person("whatsapp", (PHONE, LID)) == "ann"
    assert People({}).person("whatsapp", (PHONE, LID)) == f"whatsapp:{PHONE}"


def test_chained_links_join_all_ids(database: Database) -> None:
    def link(known: str, another: str) -> None:
        database.write(lambda tx: link_user_ids(tx, "whatsapp", known, another))

    link("a", "b")
    link("c", "d")
    link("b", "d")
    link("d", "a")
    link("e", "e")
    found = database.read(lambda tx: {one: list_user_ids(tx, "whatsapp", one) for one in "abcde"})
    assert found == dict.fromkeys("abcd", ("a", "b", "c", "d")) | {"e": ("e",)}


def test_private_chat_has_one_session_key_for_all_ids_of_a_person() -> None:
    addresses = [Address("whatsapp", one, user_id=one) for one in (PHONE, LID)]
    keys = {build_session_key(canonical_address(address, (PHONE, LID))) for address in addresses}
    assert keys == {f"agent:main:whatsapp:private:{PHONE}"}
    group = Address("whatsapp", "group-1", "group", user_id=LID)
    assert build_session_key(canonical_address(group, (PHONE, LID))).endswith(f":group-1:{PHONE}")
