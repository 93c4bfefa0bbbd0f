"""Which conversation a place speaks in, whose it is and who reads it."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from talaria.core.addresses import Address, ChatType
from talaria.sessions.keys import Ownership, build_session_key, is_shared, resolve_ownership

FAMILY = Address("telegram", "-100", "group", user_id="42")
TOPIC = Address("telegram", "-100", "thread", "7", "42")

# Few letters, so that different ids often look alike once they are put together.
_IDS = st.text(alphabet="ab:%23A@!", max_size=4)
_PLACES = st.builds(Address, st.sampled_from(["t", "m"]), _IDS, st.sampled_from(get_args(ChatType)), _IDS, _IDS)


def test_a_private_chat_goes_by_chat() -> None:
    assert build_session_key(Address("telegram", "42", user_id="42")) == "agent:main:telegram:private:42"
    assert build_session_key(Address("telegram", "42", thread_id="7")) == "agent:main:telegram:private:42:7"


def test_a_group_goes_by_person_unless_it_is_shared() -> None:
    assert build_session_key(FAMILY) == "agent:main:telegram:group:-100:42"
    assert build_session_key(FAMILY, group_sessions_per_user=False) == "agent:main:telegram:group:-100"
    nobody = structs.replace(FAMILY, user_id="")
    assert build_session_key(nobody) == "agent:main:telegram:group:-100"


def test_a_thread_is_shared_unless_it_goes_by_person() -> None:
    assert build_session_key(TOPIC) == "agent:main:telegram:thread:-100:7"
    assert build_session_key(TOPIC, thread_sessions_per_user=True) == "agent:main:telegram:thread:-100:7:42"


def test_a_thread_has_one_key_whatever_the_chat_around_it_is_called() -> None:
    assert build_session_key(structs.replace(TOPIC, chat_type="group")) == build_session_key(TOPIC)
    assert build_session_key(structs.replace(TOPIC, thread_id="")) == build_session_key(FAMILY)


def test_colons_in_ids_do_not_blur_where_one_ends() -> None:
    place = Address("matrix", "!room:example.org", "group", user_id="@ann:example.org")
    assert build_session_key(place) == "agent:main:matrix:group:!room%3Aexample.org:@ann%3Aexample.org"


@given(_PLACES, _PLACES, st.booleans(), st.booleans())
def test_two_places_have_one_key_only_if_they_share_a_conversation(
    one: Address, other: Address, per_group: bool, per_thread: bool
) -> None:
    def key(place: Address) -> str:
        return build_session_key(place, group_sessions_per_user=per_group, thread_sessions_per_user=per_thread)

    same = meant(one, per_group, per_thread) == meant(other, per_group, per_thread)
    assert (key(one) == key(other)) is same


def meant(place: Address, per_group: bool, per_thread: bool) -> tuple[str, ...]:
    """Return what tells conversations apart, said in another way than in keys."""
    if place.chat_type == "private":
        return place.platform, "private", place.chat_id, place.thread_id
    if place.thread_id:
        return place.platform, "thread", place.chat_id, place.thread_id, place.user_id if per_thread else ""
    kind = "channel" if place.chat_type == "channel" else "group"
    return place.platform, kind, place.chat_id, "", place.user_id if per_group else ""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Address("telegram", "42", user_id="42"), Ownership("telegram:42", "")),
        (FAMILY, Ownership("telegram:42", "telegram/-100")),
        (TOPIC, Ownership("telegram/-100", "telegram/-100")),
        (structs.replace(FAMILY, user_id=""), Ownership("telegram/-100", "telegram/-100")),
    ],
)
def test_a_conversation_is_a_persons_or_that_of_all_who_share_it(place: Address, expected: Ownership) -> None:
    assert resolve_ownership(place, "telegram:42", shared=is_shared(place)) == expected


@given(_PLACES)
def test_what_is_shared_is_never_a_persons(place: Address) -> None:
    shared = resolve_ownership(place, "t:1", shared=True)
    assert shared.owner
    assert ":" not in shared.owner.partition("/")[0]
