"""The state of rooms, from their state events."""

import pytest

from talaria.platforms.matrix.account_state import RoomState
from talaria.platforms.matrix.events import RoomEvent

ME = "@bot:x.example"
ANN, BEN = "@ann:x.example", "@ben:x.example"


def state(kind: str, content: dict[str, object], key: str | None = "") -> RoomEvent:
    return RoomEvent(type=f"m.room.{kind}", event_id="$e", sender=ANN, state_key=key, content=content)


def member(user_id: str, membership: str = "join", name: object = None) -> RoomEvent:
    return state("member", {"membership": membership, "displayname": name}, user_id)


def room_of(*events: RoomEvent) -> RoomState:
    room = RoomState()
    room.apply(events)
    return room


def test_latest_name_of_a_room_is_used() -> None:
    room = room_of(state("name", {"name": "Old"}), state("canonical_alias", {"alias": "#garden:x.example"}))
    room.apply([state("name", {"name": "Garden"})])
    assert room.describe("!r", ME).name == "Garden"
    room.apply([state("name", {})])
    assert room.describe("!r", ME).name == "#garden:x.example"


@pytest.mark.parametrize(
    ("people", "name"),
    [
        ({}, "Empty room"),
        ({ME: "Bot"}, "Empty room"),
        ({ME: "Bot", ANN: "Ann"}, "Ann"),
        ({ME: "Bot", BEN: "Ben", ANN: "Ann"}, "Ann and Ben"),
        ({ME: "Bot", BEN: None, ANN: "Ann"}, f"{BEN} and Ann"),
        ({ME: "Bot", BEN: "Ann", ANN: "Ann"}, f"Ann ({ANN}) and Ann ({BEN})"),
        ({f"@{one}": one for one in "abcdef"}, "a, b, c, d, e and 1 other"),
        ({f"@{one}": one for one in "abcdefg"}, "a, b, c, d, e and 2 others"),
    ],
)
def test_room_without_a_name_is_named_after_its_other_members(people: dict[str, str | None], name: str) -> None:
    room = room_of(*(member(user_id, "join", shown) for user_id, shown in people.items()))
    assert room.describe("!r", ME).name == name


def test_invited_people_are_members_and_people_who_left_are_not() -> None:
    room = room_of(member(ME), member(ANN, "join", "Ann"), member(BEN, "invite", "Ben"), member("@x:y", "knock"))
    assert room.describe("!r", ME).people == {ME: "", ANN: "Ann", BEN: "Ben"}
    assert not room.describe("!r", ME).private
    room.apply([member(BEN, "leave", "Ben")])
    assert room.describe("!r", ME).private
    room.apply([member(ANN, "ban")])
    assert room.describe("!r", ME).members == 1


def test_encryption_of_a_room_cannot_be_turned_off() -> None:
    room = room_of(member(ME))
    assert not room.encrypted
    room.apply([state("encryption", {}), state("encryption", {"algorithm": ""})])
    assert room.encrypted


def test_events_without_state_key_or_of_wrong_type_are_ignored() -> None:
    room = room_of(state("name", {"name": "Fake"}, None), state("encryption", {}, None), state("name", {"name": 3}))
    room.apply([member(ANN, "join", ["Ann"])])
    assert room.describe("!r", ME).name == ANN
    assert not room.encrypted
