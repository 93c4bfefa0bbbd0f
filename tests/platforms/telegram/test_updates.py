"""Reading of updates that the loopback server doesn't produce."""

from typing import Any

import msgspec
import pytest

from talaria.platforms.telegram.incoming import BotIdentity, read_update
from talaria.platforms.telegram.wire import TelegramUpdate, decode_update

US = BotIdentity("telegram", 1, "talaria_bot")
ANN = {"id": 7, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
GROUP = {"id": -100, "type": "supergroup", "title": "Family"}


def update(**fields: Any) -> TelegramUpdate:
    message = {"message_id": 5, "date": 1_700_000_000, "chat": GROUP, "from": ANN, **fields}
    read = decode_update(
        msgspec.json.encode({"update_id": 9, "message": {name: value for name, value in message.items() if value}})
    )
    assert read is not None
    return read


def test_anonymous_administrator_is_identified_as_the_chat() -> None:
    hidden = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    incoming = read_update(update(text="hi", sender_chat=GROUP, **{"from": hidden}), US)
    assert incoming is not None
    assert (incoming.sender.id, incoming.sender.name) == ("-100", "Family")


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "the same", "edit_date": None},
        {"location": {"latitude": 1.5, "longitude": 2.5, "live_period": 900}, "edit_date": 1_700_000_100},
    ],
)
def test_edits_without_new_text_are_ignored(fields: dict[str, Any]) -> None:
    message = {"message_id": 5, "date": 1_700_000_000, "chat": GROUP, "from": ANN, **fields}
    read = decode_update(
        msgspec.json.encode({"update_id": 9, "edited_message": {name: one for name, one in message.items() if one}})
    )
    assert read is not None
    assert read_update(read, US) is None


def test_messages_of_other_bots_are_ignored() -> None:
    assert read_update(update(text="hi", **{"from": {**ANN, "is_bot": True}}), US) is None


@pytest.mark.parametrize(
    "notice",
    [
        {"new_chat_members": [ANN]},
        {"left_chat_member": ANN},
        {"new_chat_title": "Friends"},
        {"group_chat_created": True},
        {"pinned_message": {"message_id": 3, "date": 1, "chat": GROUP, "text": "x"}},
    ],
)
def test_service_notices_are_ignored(notice: dict[str, Any]) -> None:
    assert read_update(update(**notice), US) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location: 52.5, 13.4]"),
        ({"contact": {"phone_number": "+49 1", "first_name": "Bob"}}, "[contact: Bob, +49 1]"),
        ({"dice": {"emoji": "🎲", "value": 6}}, "[🎲 6]"),
        (
            {"venue": {"location": {"latitude": 1, "longitude": 2}, "title": "Zoo", "address": "Main St"}},
            "[place: Zoo, Main St (1, 2)]",
        ),
    ],
)
def test_messages_without_text_are_described(content: dict[str, Any], text: str) -> None:
    incoming = read_update(update(**content), US)
    assert incoming is not None
    assert incoming.text == text


def test_mention_of_us_without_a_username_is_addressed() -> None:
    mark = {"type": "text_mention", "offset": 0, "length": 7, "user": {"id": 1, "is_bot": True, "first_name": "T"}}
    incoming = read_update(update(text="Talaria hello", entities=[mark]), US)
    assert incoming is not None
    assert incoming.addressed


def test_mention_in_a_caption_is_addressed() -> None:
    photo = [{"file_id": "f", "file_unique_id": "u", "width": 9, "height": 9}]
    mark = {"type": "mention", "offset": 0, "length": 12}
    incoming = read_update(update(photo=photo, caption="@talaria_bot look", caption_entities=[mark]), US)
    assert incoming is not None
    assert (incoming.text, incoming.addressed) == ("look", True)


def test_unsupported_update_is_ignored() -> None:
    read = decode_update(
        msgspec.json.encode({"update_id": 3, "inline_query": {"id": "1", "from": ANN, "query": "x", "offset": ""}})
    )
    assert read is not None
    assert read_update(read, US) is None


def test_ids_differ_between_chats_that_share_an_update_number() -> None:
    # After a week without updates, Telegram continues at a random number.
    first = read_update(update(text="a"), US)
    second = read_update(update(text="a", message_id=6), US)
    assert first is not None
    assert second is not None
    assert first.external_id != second.external_id
