"""Session keys of addresses, and the owner and audience of a session."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from talaria.core.addresses import Address, ChatType
from talaria.sessions.keys import Ownership, build_session_key, is_shared, resolve_ownership

FAMILY = Address("telegram", "-100", "group", user_id="42")
TOPIC = Address("telegram", "-100", "thread", "7", "42")

# Few letters, so that different ids often collide once they are joined.
_IDS = st.text(alphabet="ab:%23A@!", max_size=4)
_ADDRESSES = st.builds(Address, st.sampled_from(["t", "m"]), _IDS, st.sampled_from(get_args(ChatType)), _IDS, _IDS)


def test_private_chat_has_one_session_per_chat() -> None:
    assert build_session_key(Address("telegram", "42", user_id="42")) == "agent:main:telegram:private:42"
    assert build_session_key(Address("telegram", "42", thread_id="7")) == "agent:main:telegram:private:42:7"


def test_group_has_one_session_per_person_unless_shared() -> None:
    assert build_session_key(FAMILY) == "agent:main:telegram:group:-100:42"
    assert build_session_key(FAMILY, group_sessions_per_user=False) == "agent:main:telegram:group:-100"
    anonymous = structs.replace(FAMILY, user_id="")
    assert build_session_key(anonymous) == "agent:main:telegram:group:-100"


def test_thread_has_a_shared_session_unless_per_person() -> None:
    assert build_session_key(TOPIC) == "agent:main:telegram:thread:-100:7"
    assert build_session_key(TOPIC, thread_sessions_per_user=True) == "agent:main:telegram:thread:-100:7:42"


def test_thread_has_the_same_key_for_every_chat_type() -> None:
    assert build_session_key(structs.replace(TOPIC, chat_type="group")) == build_session_key(TOPIC)
    assert build_session_key(structs.replace(TOPIC, thread_id="")) == build_session_key(FAMILY)


def test_colons_in_ids_are_escaped_in_keys() -> None:
    address = Address("matrix", "!room:example.org", "group", user_id="@ann:example.org")
    assert build_session_key(address) == "agent:main:matrix:group:!room%3Aexample.org:@ann%3Aexample.org"


@given(_ADDRESSES, _ADDRESSES, st.booleans(), st.booleans())
def test_addresses_have_the_same_key_only_if_they_share_a_session(
    one: Address, other: Address, per_group: bool, per_thread: bool
) -> None:
    def key(address: Address) -> str:
        return build_session_key(address, group_sessions_per_user=per_group, thread_sessions_per_user=per_thread)

    same = session_parts(one, per_group, per_thread) == session_parts(other, per_group, per_thread)
    assert (key(one) == key(other)) is same


def session_parts(address: Address, per_group: bool, per_thread: bool) -> tuple[str, ...]:
    """Return the parts that distinguish sessions, independently of the key format."""
    if address.chat_type == "private":
        return address.platform, "private", address.chat_id, address.thread_id
    if address.thread_id:
        return address.platform, "thread", address.chat_id, address.thread_id, address.user_id if per_thread else ""
    kind = "channel" if address.chat_type == "channel" else "group"
    return address.platform, kind, address.chat_id, "", address.user_id if per_group else ""


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (Address("telegram", "42", user_id="42"), Ownership("telegram:42", "")),
        (FAMILY, Ownership("telegram:42", "telegram/-100")),
        (TOPIC, Ownership("telegram/-100", "telegram/-100")),
        (structs.replace(FAMILY, user_id=""), Ownership("telegram/-100", "telegram/-100")),
    ],
)
def test_session_is_owned_by_a_person_or_by_the_shared_chat(address: Address, expected: Ownership) -> None:
    assert resolve_ownership(address, "telegram:42", shared=is_shared(address)) == expected


@given(_ADDRESSES)
def test_shared_session_is_never_owned_by_a_person(address: Address) -> None:
    shared = resolve_ownership(address, "t:1", shared=True)
    assert shared.owner
    assert ":" not in shared.owner.partition("/")[0]
