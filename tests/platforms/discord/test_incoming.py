"""Translation of Discord's events: who is addressed, the address, and the text."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import convert

from talaria.contracts.platform import Sender
from talaria.core.addresses import Address
from talaria.platforms.discord.incoming import BotIdentity, read_interaction, read_message, read_reaction, sticker_path
from talaria.platforms.discord.wire import DIRECT, Channel, Interaction, Message, Reaction

ME, ANN, BOB = "1", {"id": "7", "username": "ann", "global_name": "Ann"}, {"id": "8", "username": "bob"}
US = {"id": ME, "username": "talaria", "bot": True}
AT = "2026-07-28T10:00:00+00:00"
CHAT, CHANNEL = Channel("50", DIRECT), Channel("60", 0, "general", "5")
THREAD = Channel("70", 11, "Plans", "5", "60", "7")
OWN_THREAD = Channel("71", 11, "Handed over", "5", "60", ME)
ACCOUNT = BotIdentity("discord", ME)


def message(content: str = "", **more: Any) -> Message:
    return convert(
        {"id": "900", "channel_id": "60", "author": ANN, "timestamp": AT, "content": content, **more}, Message
    )


def answer_to(author: dict[str, Any]) -> dict[str, Any]:
    reference = {"message_id": "800", "channel_id": "60", "type": 0}
    return {"type": 19, "message_reference": reference, "referenced_message": {"author": author}, "mentions": [author]}


def test_private_message_is_addressed_to_us() -> None:
    incoming = read_message(message("hello"), CHAT, ACCOUNT)
    assert incoming is not None
    assert (incoming.external_id, incoming.message_id, incoming.text) == ("900", "900", "hello")
    assert incoming.address == Address("discord", "50")
    assert incoming.sender == Sender("7", "Ann")
    assert incoming.at == datetime(2026, 7, 28, 10, tzinfo=UTC)
    assert (incoming.addressed, incoming.chat_name) == (True, "Ann")


@pytest.mark.parametrize(
    ("channel", "address"),
    [
        (CHANNEL, Address("discord", "60", "group")),
        (THREAD, Address("discord", "60", "thread", "70")),
        (Channel("72", 11, "A post", "5", "61"), Address("discord", "61", "thread", "72")),
    ],
)
def test_channels_threads_and_forum_posts_have_addresses(channel: Channel, address: Address) -> None:
    incoming = read_message(message("hello"), channel, ACCOUNT)
    assert incoming is not None
    assert (incoming.address, incoming.chat_name) == (address, channel.name)


@pytest.mark.parametrize(
    ("mode", "posted", "channel", "is_addressed"),
    [
        ("reply", message("hello"), CHANNEL, False),
        ("reply", message("<@1> hello"), CHANNEL, True),
        ("reply", message("well, <@!1>?"), CHANNEL, True),
        ("reply", message("<@8> hello", mentions=[BOB]), CHANNEL, False),
        ("reply", message("yes", **answer_to(US)), CHANNEL, True),
        ("reply", message("yes", **answer_to(BOB)), CHANNEL, False),
        ("reply", message("hello"), THREAD, False),
        ("reply", message("hello"), OWN_THREAD, True),
        ("mention", message("yes", **answer_to(US)), CHANNEL, False),
        ("mention", message("hello"), OWN_THREAD, False),
        ("mention", message("<@1>"), CHANNEL, True),
        ("free", message("hello"), CHANNEL, True),
        ("reply", message("<@&55> hello", mention_roles=["55"]), CHANNEL, True),
        ("reply", message("<@&56> hello", mention_roles=["56"]), CHANNEL, False),
    ],
)
def test_group_mode_decides_which_server_messages_are_addressed(
    mode: Any, posted: Message, channel: Channel, is_addressed: bool
) -> None:
    incoming = read_message(posted, channel, BotIdentity("discord", ME, mode), own_role="55")
    assert incoming is not None
    assert incoming.addressed is is_addressed


@pytest.mark.parametrize("channel", [CHANNEL, THREAD])
def test_every_message_in_a_free_channel_and_its_threads_is_addressed(channel: Channel) -> None:
    incoming = read_message(message("hello"), channel, BotIdentity("discord", ME, free=frozenset({"60"})))
    assert incoming is not None
    assert incoming.addressed


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<@1> what time is it?", "what time is it?"),
        ("<@!1>, please", "please"),
        ("<@&55>: go", "go"),
        ("<@1>", "@Talaria"),
        ("ask <@8> and <@1>", "ask @bob and @Talaria"),
        ("ask <@99>", "ask @99"),
        ("nice <:blob:123> <a:party:4>", "nice :blob: :party:"),
        ("`code` **bold** @everyone", "`code` **bold** @everyone"),
    ],
)
def test_mentions_and_emoji_are_replaced_by_names(content: str, text: str) -> None:
    mentions = [BOB, {**US, "global_name": "Talaria"}]
    incoming = read_message(message(content, mentions=mentions), CHANNEL, ACCOUNT, own_role="55")
    assert incoming is not None
    assert incoming.text == text


@pytest.mark.parametrize(
    "posted",
    [
        message("beep", author={**BOB, "bot": True}),
        message("beep", webhook_id="4"),
        message("joined", type=7),
        message("a thread begins", type=21),
        message(""),
    ],
)
def test_messages_of_bots_and_system_messages_are_ignored(posted: Message) -> None:
    assert read_message(posted, CHAT, ACCOUNT) is None


def test_edit_has_the_new_text_and_its_own_external_id() -> None:
    posted = message("better", edited_timestamp="2026-07-28T10:05:00+00:00")
    incoming = read_message(posted, CHAT, ACCOUNT, edited=True)
    assert incoming is not None
    assert (incoming.external_id, incoming.message_id) == ("900:2026-07-28T10:05:00+00:00", "900")
    assert (incoming.edited, incoming.at) == (True, datetime(2026, 7, 28, 10, 5, tzinfo=UTC))
    assert read_message(message("same"), CHAT, ACCOUNT, edited=True) is None  # a preview of a link came


def test_forwarded_messages_and_polls_are_described_as_text() -> None:
    snapshot = {"message": {"content": "the plan", "attachments": [_file("1", "plan.pdf", "application/pdf")]}}
    reference = {"type": 1, "message_id": "800", "channel_id": "61"}
    incoming = read_message(message(message_snapshots=[snapshot], message_reference=reference), CHAT, ACCOUNT)
    assert incoming is not None
    assert (incoming.text, incoming.reply_to) == ("[forwarded] the plan", "")
    assert [one.name for one in incoming.attachments] == ["plan.pdf"]
    asked = read_message(message(poll={"question": {"text": "Pizza?"}}), CHAT, ACCOUNT)
    assert asked is not None
    assert asked.text == "[poll: Pizza?]"


def _file(number: str, name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "filename": name, "size": 5, "url": "x:", "content_type": kind, **more}


def test_attachments_have_kind_and_media_type() -> None:
    files = [
        _file("1", "cat.png", "image/png"),
        _file("2", "notes.txt", "text/plain; charset=utf-8"),
        _file("3", "voice-message.ogg", "audio/ogg", waveform="AAAA", duration_secs=1.5),
        _file("4", "drawing.svg", "image/svg+xml"),
    ]
    incoming = read_message(message(attachments=files), CHAT, ACCOUNT)
    assert incoming is not None
    assert [(one.kind, one.media_type, one.reference) for one in incoming.attachments] == [
        ("picture", "image/png", "60/900/1"),
        ("document", "text/plain", "60/900/2"),
        ("voice", "audio/ogg", "60/900/3"),
        ("document", "image/svg+xml", "60/900/4"),
    ]


def test_sticker_has_its_id_and_name() -> None:
    incoming = read_message(message(sticker_items=[{"id": "5", "name": "Wave", "format_type": 4}]), CHAT, ACCOUNT)
    assert incoming is not None
    (sticker,) = incoming.attachments
    assert (sticker.kind, sticker.unique_id, sticker.hint) == ("sticker", "5", "Wave")
    assert sticker_path(sticker.reference) == "/stickers/5.gif"
    assert sticker_path("60/900/1") == ""


@pytest.mark.parametrize(
    ("more", "is_addressed"),
    [({}, False), ({"message_author_id": ME}, True)],
)
def test_reaction_in_a_server_is_addressed_if_it_is_on_our_message(more: dict[str, str], is_addressed: bool) -> None:
    member = {"nick": "Annie", "user": ANN}
    fields = {
        "user_id": "7",
        "channel_id": "60",
        "message_id": "800",
        "emoji": {"name": "👍"},
        "member": member,
        **more,
    }
    incoming = read_reaction("s:4", convert(fields, Reaction), CHANNEL, ACCOUNT)
    assert incoming is not None
    assert (incoming.external_id, incoming.reaction, incoming.message_id) == ("s:4", "👍", "800")
    assert (incoming.addressed, incoming.sender) == (is_addressed, Sender("7", "Annie"))


@pytest.mark.parametrize(("who", "emoji"), [(ME, {"name": "👍"}), ("7", {"id": "5", "name": "blob"}), ("7", {})])
def test_own_reactions_and_custom_emoji_are_not_reported(who: str, emoji: dict[str, str]) -> None:
    fields = {"user_id": who, "channel_id": "60", "message_id": "800", "emoji": emoji}
    assert read_reaction("s:4", convert(fields, Reaction), CHANNEL, ACCOUNT) is None


def interaction(kind: int, data: dict[str, Any], **more: Any) -> Interaction:
    fields = {"id": "1400000000000000000", "application_id": ME, "type": kind, "token": "t", "data": data, "user": ANN}
    return convert({**fields, **more}, Interaction)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": "status"}, "/status"),
        ({"name": "goal", "options": [{"name": "words", "value": "tidy up"}]}, "/goal tidy up"),
    ],
)
def test_command_interaction_becomes_slash_command_text(data: dict[str, Any], text: str) -> None:
    incoming = read_interaction(interaction(2, data), CHANNEL, ACCOUNT)
    assert incoming is not None
    assert (incoming.text, incoming.button, incoming.message_id) == (text, "", "")
    assert incoming.addressed
    assert incoming.at.year == 2025


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ({"custom_id": "approve:7", "component_type": 2}, "approve:7"),
        ({"custom_id": "talaria-menu", "component_type": 3, "values": ["model:3"]}, "model:3"),
    ],
)
def test_component_interaction_reports_the_chosen_value(data: dict[str, Any], value: str) -> None:
    pressed = interaction(3, data, message={"id": "800"})
    incoming = read_interaction(pressed, THREAD, ACCOUNT)
    assert incoming is not None
    assert (incoming.button, incoming.message_id, incoming.text) == (value, "800", "")
    assert incoming.address == Address("discord", "60", "thread", "70")


@pytest.mark.parametrize("kind", [1, 4, 5])
def test_other_interaction_types_are_ignored(kind: int) -> None:
    assert read_interaction(interaction(kind, {"name": "status"}), CHANNEL, ACCOUNT) is None
