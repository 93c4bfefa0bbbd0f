"""Reactions on Telegram: about seventy emoji, and updates that don't name the author of the message."""

import msgspec
import pytest
from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.platform import Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.incoming import BotIdentity, read_update
from talaria.platforms.telegram.wire import decode_update
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import TelegramServer

ANN = {"id": 7, "is_bot": False, "first_name": "Ann"}
GROUP = {"id": -100, "type": "supergroup", "title": "Family"}


@pytest.mark.parametrize(
    ("requested", "shown"),
    [("✅", "👍"), ("✔️", "👍"), ("❌", "👎"), ("❤️", "❤"), ("🚀", "👀"), ("⏳", "👀"), ("🔥", "🔥")],
)
async def test_unsupported_emoji_is_replaced_by_the_nearest_one(
    server: TelegramServer, telegram: Telegram, requested: str, shown: str
) -> None:
    ann = server.user("Ann")
    message = await server.private(ann).says(ann, "hello")
    await telegram.react(MessageRef(Address("telegram", str(ann.id)), str(message.id)), requested)
    assert message.reactions == {server.bot.id: (shown,)}


async def test_a_chat_without_reactions_is_reported(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    message = await server.private(ann).says(ann, "hello")
    server.fail("setMessageReaction", 400, 10, description="Bad Request: REACTION_INVALID")
    with pytest.raises(Rejected, match="REACTION_INVALID"):
        await telegram.react(MessageRef(Address("telegram", str(ann.id)), str(message.id)), "🚀")
    assert [call.method for call in server.calls] == ["setMessageReaction"] * 3


async def test_reaction_to_our_message_in_a_topic_has_the_address_of_the_topic(
    server: TelegramServer, telegram: Telegram
) -> None:
    ann = server.user("Ann")
    forum = server.forum("Project", ann)
    topic = await forum.opens_topic(ann, "Plans")
    topic_address = Address("telegram", str(forum.id), "thread", str(topic.id))
    theirs = await forum.says(ann, "what now?", thread=topic)
    async with telegram.connect() as arrivals:
        await next_incoming(arrivals)
        ref = await telegram.send(topic_address, Content(text="May I?"), "k")
        await forum.reacts(ann, theirs, "🔥")
        await forum.reacts(ann, forum.answers[0], "👍")
        aside, ours = await next_incoming(arrivals), await next_incoming(arrivals)
    assert (aside.reaction, aside.addressed) == ("🔥", False)
    assert (ours.reaction, ours.addressed, ours.message_id) == ("👍", True, ref.message_id)
    assert ours.address == topic_address
    assert ours.sender.id == str(ann.id)


async def test_a_removed_reaction_is_not_reported(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    chat = server.private(ann)
    ref = await telegram.send(Address("telegram", str(ann.id)), Content(text="Done."), "k")
    async with telegram.connect() as arrivals:
        for emoji in (["👍"], ["👍", "🔥"], [], ["👎"]):
            await chat.reacts(ann, chat.answers[0], *emoji)
        received = [await next_incoming(arrivals) for _ in range(3)]
    assert [one.reaction for one in received] == ["👍", "🔥", "👎"]
    assert {one.message_id for one in received} == {ref.message_id}
    assert len({one.external_id for one in received}) == 3


async def test_reactions_are_addressed_to_us_in_free_mode(server: TelegramServer) -> None:
    free = Telegram(settings_for(server, group_mode="free"))
    ann = server.user("Ann")
    group = server.group("Family", ann, admin=True)
    message = await group.says(ann, "hello")
    async with free.connect() as arrivals:
        await next_incoming(arrivals)
        await group.reacts(ann, message, "👍")
        incoming = await next_incoming(arrivals)
    await free.close()
    assert (incoming.reaction, incoming.addressed) == ("👍", True)


@pytest.mark.parametrize(
    ("fields", "sender"),
    [
        ({"user": ANN}, "7"),
        ({"actor_chat": GROUP}, "-100"),
        ({}, None),
        ({"user": ANN, "new_reaction": [{"type": "custom_emoji", "custom_emoji_id": "5"}]}, None),
        ({"user": ANN, "new_reaction": [{"type": "paid"}]}, None),
    ],
)
def test_the_author_of_a_reaction_is_reported_if_known(fields: dict[str, object], sender: str | None) -> None:
    changed = {"chat": GROUP, "message_id": 5, "date": 1_700_000_000, "old_reaction": []}
    changed |= {"new_reaction": [{"type": "emoji", "emoji": "👍"}], **fields}
    update = decode_update(msgspec.json.encode({"update_id": 9, "message_reaction": changed}))
    assert update is not None
    incoming = read_update(update, BotIdentity("telegram", 1, "talaria_bot"))
    assert (incoming.sender.id if incoming else None) == sender
