"""Directory of known chats, and targets found by name."""

from datetime import timedelta

import pytest

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Ambiguous, NotFound
from talaria.sessions.chat_directory import (
    HomeChat,
    KnownChannel,
    address_label,
    find_target,
    forget_channel,
    list_channels,
    record_channel,
    write_home,
)
from talaria.testing.clock import NOON

NETWORKS = ("telegram", "discord", "matrix", "slack")
FAMILY = Address("telegram", "-100", "group")
ROOM = Address("matrix", "!abc:example.org", "group")


@pytest.fixture
def chats(mine: Transaction) -> Transaction:
    """A store in which some chats are known."""
    record_channel(mine, FAMILY, "Family", NOON)
    record_channel(mine, Address("telegram", "42", user_id="42"), "Ann", NOON + timedelta(minutes=1))
    record_channel(mine, Address("discord", "9001", "thread", "77", "5"), "#Ops", NOON)
    record_channel(mine, ROOM, "Kitchen: plans", NOON)
    return mine


def test_recorded_chats_are_listed_by_network_until_forgotten(chats: Transaction, theirs: Transaction) -> None:
    assert [one.name for one in list_channels(theirs, "telegram")] == ["Ann", "Family"]
    assert len(list_channels(theirs)) == 4
    (ops,) = list_channels(theirs, "discord")
    assert ops == KnownChannel(Address("discord", "9001", "group"), "#Ops", NOON)
    assert forget_channel(theirs, FAMILY)
    assert [one.name for one in list_channels(chats, "telegram")] == ["Ann"]


def test_new_chat_name_is_stored_at_once_and_the_time_every_ten_minutes(chats: Transaction) -> None:
    def seen() -> list[tuple[str, timedelta]]:
        return [(one.name, one.seen - NOON) for one in list_channels(chats, "discord")]

    address = Address("discord", "9001", "group")
    record_channel(chats, address, "", NOON + timedelta(minutes=9))
    assert seen() == [("#Ops", timedelta())]
    record_channel(chats, address, "", NOON + timedelta(minutes=10))
    assert seen() == [("#Ops", timedelta(minutes=10))]
    record_channel(chats, address, "#on  call", NOON + timedelta(minutes=11))
    assert seen() == [("#on call", timedelta(minutes=11))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("telegram:Family", FAMILY),
        (" telegram: family ", FAMILY),
        ("telegram:-100", FAMILY),
        ("telegram:-100:17", Address("telegram", "-100", "thread", "17")),
        ("telegram:Family:17", Address("telegram", "-100", "thread", "17")),
        ("telegram:@ann", Address("telegram", "42")),
        ("telegram:42:3", Address("telegram", "42", "private", "3")),
        ("discord:#ops", Address("discord", "9001", "group")),
        ("discord:ops", Address("discord", "9001", "group")),
        ("matrix:!abc:example.org", ROOM),
        ("matrix:!abc:example.org:$event", Address("matrix", "!abc:example.org", "thread", "$event")),
        ("matrix:Kitchen: plans", ROOM),
        ("telegram:-100200300", Address("telegram", "-100200300", "group")),
        ("telegram:-100200300:5", Address("telegram", "-100200300", "thread", "5")),
        ("matrix:!new:example.org:8448", Address("matrix", "!new:example.org:8448", "group")),
        ("matrix:!new:example.org:$event", Address("matrix", "!new:example.org", "thread", "$event")),
        ("slack:C024BE91L:1712.0001", Address("slack", "C024BE91L", "thread", "1712.0001")),
    ],
)
def test_target_is_found_by_name_or_id(chats: Transaction, text: str, expected: Address) -> None:
    assert find_target(chats, text, NETWORKS) == expected


def test_network_name_alone_means_its_home_chat(chats: Transaction) -> None:
    with pytest.raises(NotFound, match="no home chat yet"):
        find_target(chats, "telegram", NETWORKS)
    write_home(chats, HomeChat(FAMILY, "Family"))
    assert find_target(chats, "telegram", NETWORKS) == find_target(chats, "telegram:", NETWORKS) == FAMILY


def test_address_is_labelled_with_the_name_of_its_chat(chats: Transaction) -> None:
    assert address_label(chats, Address("telegram", "42")) == "Telegram, Ann"
    assert address_label(chats, Address("discord", "9001", "thread", "77")) == "Discord, #Ops (in its own thread)"
    write_home(chats, HomeChat(Address("telegram", "42"), "My phone"))
    assert address_label(chats, Address("telegram", "42")) == "Telegram, My phone"
    assert address_label(chats, Address("telegram", "43")) == "Telegram, chat 43"


def test_name_of_several_chats_is_ambiguous(chats: Transaction) -> None:
    record_channel(chats, Address("telegram", "-200", "group"), "FAMILY", NOON)
    with pytest.raises(Ambiguous, match=r"2 chats(.|\n)*telegram:-\d00  "):
        find_target(chats, "telegram:Family", NETWORKS)
    assert find_target(chats, "telegram:-200", NETWORKS).chat_id == "-200"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("telegram:Famly", "There is no chat named `Famly` on telegram; the closest match is `Family`."),
        ("telegram:Fam", "the closest match is `Family`|available: `Ann`, `Family`"),
        ("slack:general", "There is no chat named `general` on slack; none is known yet."),
        ("telegarm:Family", "I'm not connected to a chat network named `telegarm`; the closest match is `telegram`."),
        ("Family", "available: `telegram`, `discord`, `matrix`, `slack`."),
        ("", "not connected to a chat network"),
    ],
)
def test_misspelt_target_error_names_the_closest_match(chats: Transaction, text: str, sentence: str) -> None:
    with pytest.raises(NotFound, match=sentence):
        find_target(chats, text, NETWORKS)
