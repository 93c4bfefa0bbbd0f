"""Threads for handoffs to Discord."""

from typing import Literal

import pytest

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import SlowDown
from talaria.platforms.discord.adapter import Discord
from talaria.testing.discord_server import DiscordServer
from talaria.testing.discord_server.methods import open_thread
from talaria.testing.platform_suite import next_incoming


@pytest.mark.parametrize(("kind", "seeds"), [("text", 0), ("announcements", 0), ("forum", 1)])
async def test_handoff_thread_is_created_and_its_messages_are_addressed_to_us(
    server: DiscordServer, discord: Discord, kind: Literal["text", "announcements", "forum"], seeds: int
) -> None:
    ann = server.user("Ann")
    channel = server.channel("general", kind)
    thread_id = await discord.create_handoff_thread(channel.id, "Trip to Rome")
    assert thread_id
    thread = server.room(thread_id)
    assert (thread.channel.name, thread.channel.parent, len(thread.posts)) == ("Trip to Rome", channel.channel, seeds)
    address = Address("discord", channel.id, "thread", thread_id)
    await discord.send(address, Content(text="It continues here."), "k")
    async with discord.connect() as arrivals:
        await thread.says(ann, "and now?")
        incoming = await next_incoming(arrivals)
    assert (incoming.address, incoming.addressed) == (address, True)
    assert channel.posts == []


async def test_without_thread_permission_the_thread_is_started_from_a_message(
    server: DiscordServer, discord: Discord
) -> None:
    channel = server.channel("general")
    channel.channel.forbids.add("threads")
    thread_id = await discord.create_handoff_thread(channel.id, "Trip to Rome")
    (seed,) = channel.answers
    assert (thread_id, seed.text) == (seed.id, "Trip to Rome")
    await discord.send(Address("discord", channel.id, "thread", seed.id), Content(text="Here."), "k")
    assert [post.text for post in server.room(seed.id).answers] == ["Here."]


@pytest.mark.parametrize("forbidden", ["all threads", "look", "messages"])
async def test_refused_thread_leaves_no_message_behind(server: DiscordServer, discord: Discord, forbidden: str) -> None:
    channel = server.channel("general")
    channel.channel.forbids |= {forbidden, "threads"}
    assert await discord.create_handoff_thread(channel.id, "Trip to Rome") is None
    assert channel.posts == []


async def test_no_thread_is_created_in_private_chats_or_threads(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    thread = await server.channel("general").opens_thread(ann, "Plans")
    assert await discord.create_handoff_thread(server.private(ann).id, "Trip to Rome") is None
    assert await discord.create_handoff_thread(thread.id, "Trip to Rome") is None
    assert await discord.create_handoff_thread("general", "Trip to Rome") is None
    assert not any(one.method == "POST" for one in server.calls)


async def test_rate_limit_while_creating_a_thread_is_raised(server: DiscordServer, discord: Discord) -> None:
    channel = server.channel("general")
    server.fail(open_thread, 429, retry_after=9)
    with pytest.raises(SlowDown):
        await discord.create_handoff_thread(channel.id, "Trip to Rome")
    assert channel.posts == []
