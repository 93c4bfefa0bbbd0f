"""Receiving from Discord: broken connections, expired gateway sessions and new processes."""

from datetime import timedelta

import pytest
from tests.platforms.discord.far_side import settings_for

from talaria.contracts.platform import Button, Content
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, SlowDown, Unreachable
from talaria.platforms.discord.adapter import Discord
from talaria.platforms.discord.receiver import DurableProgressStore
from talaria.testing.discord_server import DiscordServer
from talaria.testing.discord_server.methods import gateway, own_application
from talaria.testing.platform_suite import next_incoming


def open_adapter(server: DiscordServer, store: Store) -> Discord:
    """Return the adapter of another process."""
    return Discord(settings_for(server), (), DurableProgressStore(store, "discord"))


async def test_another_process_resumes_the_gateway_session(server: DiscordServer, store: Store) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    first = open_adapter(server, store)
    async with first.connect() as arrivals:
        await room.says(ann, "one")
        await room.says(ann, "two")
        assert [(await next_incoming(arrivals)).text for _ in range(2)] == ["one", "two"]
    await first.close()
    await room.says(ann, "three")
    second = open_adapter(server, store)
    async with second.connect() as arrivals:
        assert [(await next_incoming(arrivals)).text for _ in range(2)] == ["two", "three"]  # "two" was not confirmed
    await second.close()
    assert server.gateway.logins == ["identify", "resume"]


async def test_missed_messages_of_known_chats_are_read_after_an_expired_session(
    server: DiscordServer, store: Store
) -> None:
    ann = server.user("Ann")
    room, channel, other = server.private(ann), server.channel("general"), server.channel("gossip")
    first = open_adapter(server, store)
    async with first.connect() as arrivals:
        await room.says(ann, "in private")
        await channel.says(ann, "in the channel", mention=True)
        await other.says(ann, "among themselves")
        assert [(await next_incoming(arrivals)).addressed for _ in range(3)] == [True, True, False]
        await room.says(ann, "confirmed by the next")
        await next_incoming(arrivals)
    await first.close()
    server.gateway.expire()
    await channel.says(ann, "missed in the channel", mention=True)
    await other.says(ann, "missed there", mention=True)
    missed = await room.says(ann, "missed in private")
    second = open_adapter(server, store)
    async with second.connect() as arrivals:
        await room.says(ann, "live")
        incoming = [await next_incoming(arrivals) for _ in range(4)]
    await second.close()
    texts = ["confirmed by the next", "missed in the channel", "missed in private", "live"]
    assert [one.text for one in incoming] == texts
    assert (incoming[2].external_id, incoming[2].address) == (missed.id, Address("discord", room.id))
    assert incoming[1].address == Address("discord", channel.id, "group")
    assert server.gateway.logins == ["identify", "invalid", "identify"]


async def test_missed_messages_are_read_again_until_they_are_confirmed(server: DiscordServer, store: Store) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    first = open_adapter(server, store)
    async with first.connect() as arrivals:
        for text in ("one", "two"):
            await room.says(ann, text)
            await next_incoming(arrivals)
    await first.close()
    server.gateway.expire()
    await room.says(ann, "three")
    await room.says(ann, "four")
    received = []
    for number in (1, 2, 2, 1):
        platform = open_adapter(server, store)
        async with platform.connect() as arrivals:
            received.append([(await next_incoming(arrivals)).text for _ in range(number)])
        await platform.close()
    assert received == [["two"], ["two", "three"], ["three", "four"], ["four"]]
    assert server.gateway.logins == ["identify", *["invalid", "identify"] * 4]


@pytest.mark.parametrize("trouble", ["reconnect", "cut"])
async def test_reconnect_neither_loses_nor_repeats_messages(
    server: DiscordServer, discord: Discord, trouble: str
) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    received = []
    async with discord.connect() as arrivals:
        for number in range(3):
            await room.says(ann, f"before {number}")
            received.append(await next_incoming(arrivals))
            if trouble == "reconnect":
                await server.gateway.ask_to_reconnect()
            else:
                server.gateway.drop()
            await room.says(ann, f"after {number}")
            received.append(await next_incoming(arrivals))
    assert [one.text for one in received] == [f"{when} {number}" for number in range(3) for when in ("before", "after")]
    assert server.gateway.logins == ["identify"] + ["resume"] * 3


async def test_expired_session_is_replaced_while_connected(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    async with discord.connect() as arrivals:
        await room.says(ann, "before")
        assert (await next_incoming(arrivals)).text == "before"
        server.gateway.expire()
        server.gateway.drop()
        missed = await room.says(ann, "meanwhile")
        assert (await next_incoming(arrivals)).external_id == missed.id
    assert server.gateway.logins == ["identify", "invalid", "identify"]


async def test_unreadable_events_are_ignored(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    async with discord.connect() as arrivals:
        await server.gateway.dispatch("MESSAGE_CREATE", {"id": 5, "content": []})
        await server.gateway.dispatch("MESSAGE_REACTION_ADD", {"user_id": "7"})
        await server.gateway.dispatch("GUILD_CREATE", {"id": "5", "channels": "none"})
        await server.gateway.dispatch("SOMETHING_NEW", {"of": "tomorrow"})
        await server.private(ann).says(ann, "hello")
        assert (await next_incoming(arrivals)).text == "hello"


async def test_edits_are_reported_and_link_previews_are_not(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    async with discord.connect() as arrivals:
        post = await room.says(ann, "see https://example.org")
        await next_incoming(arrivals)
        await room.previews(post)
        await room.edits(post, "see https://example.com")
        edit = await next_incoming(arrivals)
        await room.previews(post)  # repeated with the time of the edit
        repeated = await next_incoming(arrivals)
    assert (edit.edited, edit.text, edit.message_id) == (True, "see https://example.com", post.id)
    assert repeated.external_id == edit.external_id != post.id


async def test_commands_are_registered_only_if_they_changed(server: DiscordServer, discord: Discord) -> None:
    for _ in range(2):
        async with discord.connect():
            pass
    assert [one["name"] for one in server.world.commands] == ["status", "new"]
    assert [one.method for one in server.calls if one.path.endswith("/commands")] == ["GET", "PUT", "GET"]


async def test_failed_command_registration_does_not_block_messages(server: DiscordServer, discord: Discord) -> None:
    server.fail(own_application, 403)
    ann = server.user("Ann")
    async with discord.connect() as arrivals:
        await server.private(ann).says(ann, "hello")
        assert (await next_incoming(arrivals)).text == "hello"


async def test_command_is_acknowledged_at_once_and_its_placeholder_removed_by_the_answer(
    server: DiscordServer, discord: Discord
) -> None:
    ann = server.user("Ann")
    thread = await server.channel("general").opens_thread(ann, "Plans")
    async with discord.connect() as arrivals:
        asked = await thread.uses(ann, "status", "of all")
        incoming = await next_incoming(arrivals)
        assert (asked.answer, asked.ephemeral, asked.standing) == (5, True, True)
        await discord.send(incoming.address, Content(text="All is well."), "k")
    assert (incoming.text, incoming.external_id) == ("/status of all", asked.id)
    assert incoming.address == Address(
        "discord", thread.channel.parent.id if thread.channel.parent else "", "thread", thread.id
    )
    assert not asked.standing
    assert [post.text for post in thread.answers] == ["All is well."]


async def test_a_choice_is_acknowledged_and_reported_with_its_id(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    room = server.private(ann)
    from_menu = ("Model 3", "model:3")
    await discord.send(Address("discord", room.id), Content(text="Which?", buttons=_choices(8)), "k")
    async with discord.connect() as arrivals:
        asked = await room.presses(ann, room.answers[0], from_menu[0])
        incoming = await next_incoming(arrivals)
    async with discord.connect() as arrivals:
        repeated = await next_incoming(arrivals)
    assert (incoming.button, asked.answer, asked.standing) == (from_menu[1], 6, False)
    assert (repeated.button, repeated.external_id) == (incoming.button, incoming.external_id)


async def test_mention_of_our_role_is_addressed_to_us(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    channel = server.channel("general")
    async with discord.connect() as arrivals:
        await channel.says(ann, "what now?", by_role=True)
        incoming = await next_incoming(arrivals)
    assert (incoming.addressed, incoming.text) == (True, "what now?")


async def test_forum_post_is_received_as_a_thread(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    forum = server.channel("ideas", "forum")
    async with discord.connect() as arrivals:
        post = await forum.opens_thread(ann, "An idea")
        await post.says(ann, "what do you think?", mention=True)
        incoming = await next_incoming(arrivals)
        await discord.send(incoming.address, Content(text="Good."), "k")
    assert incoming.address == Address("discord", forum.id, "thread", post.id)
    assert (incoming.chat_name, [one.text for one in post.answers]) == ("An idea", ["Good."])


async def test_channel_without_read_permission_is_treated_as_a_group(server: DiscordServer, discord: Discord) -> None:
    ann = server.user("Ann")
    async with discord.connect() as arrivals:
        hidden = server.channel("hidden")  # created after the greeting, which lists all other channels
        hidden.channel.forbids.add("look")
        await hidden.says(ann, "psst", mention=True)
        assert (await next_incoming(arrivals)).address == Address("discord", hidden.id, "group")


async def test_a_missing_message_intent_is_reported_with_instructions(server: DiscordServer, discord: Discord) -> None:
    server.gateway.allows_content = False
    with pytest.raises(BadCredentials, match="Message Content Intent"):
        async with discord.connect():
            pass
    without_content = Discord(settings_for(server, message_content=False))
    ann = server.user("Ann")
    async with without_content.connect() as arrivals:
        await server.channel("general").says(ann, "among themselves")
        await server.channel("general").says(ann, "hello", mention=True)
        assert (await next_incoming(arrivals)).text == "hello"
    await without_content.close()


async def test_token_rejected_by_the_gateway_is_reported(server: DiscordServer, discord: Discord) -> None:
    server.gateway.token = "another"
    with pytest.raises(BadCredentials, match="rejected the bot token"):
        async with discord.connect():
            pass


async def test_failure_to_get_the_gateway_url_is_reported_as_unreachable(
    server: DiscordServer, discord: Discord
) -> None:
    server.fail(gateway, 503)
    with pytest.raises(Unreachable, match="503"):
        async with discord.connect():
            pass


async def test_exhausted_session_starts_are_reported_as_a_rate_limit(server: DiscordServer, discord: Discord) -> None:
    server.gateway.starts_left = 0
    with pytest.raises(SlowDown) as slow:
        async with discord.connect():
            pass
    assert slow.value.retry_after == timedelta(hours=4)


async def test_heartbeats_are_sent(server: DiscordServer, discord: Discord) -> None:
    async with discord.connect():
        (session,) = server.gateway.sessions
        assert session.wire is not None
        wire = session.wire
        await server.world.until(lambda: wire.heartbeats >= 3)


def _choices(number: int) -> tuple[Button, ...]:
    return tuple(Button(f"Model {one}", f"model:{one}") for one in range(number))
