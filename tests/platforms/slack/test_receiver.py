"""Updates from a workspace: addresses, retries, commands and threads."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.platforms.slack.conftest import COMMANDS
from tests.platforms.slack.far_side import settings_for

from talaria.contracts.platform import Button, Content, Incoming
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Unreachable
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.threads import DurableThreadStore
from talaria.testing.platform_suite import next_incoming
from talaria.testing.slack_server import SlackServer, User
from talaria.testing.slack_server.socket_mode import Envelope
from talaria.testing.wait import until


async def assert_no_other_update(server: SlackServer, arrivals: AsyncIterator[Incoming], user: User) -> None:
    """Check that no update is pending: a message written now is the next update."""
    await server.direct(user).says(user, "the end")
    assert (await next_incoming(arrivals)).text == "the end"


async def wait_until_acknowledged(envelope: Envelope) -> None:
    """Wait until Slack has received the acknowledgement."""
    await until(lambda: envelope.acknowledged)


async def test_mention_in_a_channel_starts_a_thread(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    async with slack.connect() as arrivals:
        asked = await channel.says(ann, "what time is it?", mention=True)
        incoming = await next_incoming(arrivals)
        await slack.send(incoming.address, Content(text="Noon."), "k")
        more = await channel.says(ann, "and in Rome?", thread=asked.ts)
        further = await next_incoming(arrivals)
    assert incoming.address == further.address == Address("slack", channel.id, "thread", asked.ts)
    assert (incoming.text, incoming.chat_name, incoming.sender.name) == ("what time is it?", "family", "Ann")
    assert (further.text, further.addressed, further.message_id) == ("and in Rome?", True, more.ts)
    assert [(one.text, one.thread_ts) for one in channel.answers] == [("Noon.", asked.ts)]


async def test_thread_of_others_is_not_addressed_to_us(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    async with slack.connect() as arrivals:
        root = await channel.says(ann, "lunch?")
        await channel.says(ann, "where?", thread=root.ts)
        received = [await next_incoming(arrivals) for _ in range(2)]
    assert [(one.addressed, one.address.thread_id) for one in received] == [(False, ""), (False, root.ts)]


async def test_reply_in_a_thread_that_we_started_is_addressed_to_us(
    server: SlackServer, slack: Slack, ann: User
) -> None:
    channel = server.channel("family", ann)
    ref = await slack.send(Address("slack", channel.id, "group"), Content(text="News!"), "k")
    async with slack.connect() as arrivals:
        await channel.says(ann, "tell me more", thread=ref.message_id)
        assert (await next_incoming(arrivals)).addressed


async def test_our_threads_are_known_to_another_worker(server: SlackServer, store: Store, ann: User) -> None:
    channel = server.channel("family", ann)
    first, second = (Slack(settings_for(server), COMMANDS, DurableThreadStore(store, "slack")) for _ in range(2))
    async with first.connect() as arrivals:
        asked = await channel.says(ann, "hello", mention=True)
        await next_incoming(arrivals)
    async with second.connect() as arrivals:
        await channel.says(ann, "still there?", thread=asked.ts)
        received = await next_incoming(arrivals)
        while received.text != "still there?":  # messages that the first worker didn't confirm are redelivered
            received = await next_incoming(arrivals)
    assert received.addressed
    for one in (first, second):
        await one.close()


@pytest.mark.parametrize(("mode", "addressed"), [("mention", False), ("reply", True), ("free", True)])
async def test_group_mode_decides_whether_thread_replies_are_addressed(
    server: SlackServer, ann: User, mode: str, addressed: bool
) -> None:
    slack, channel = Slack(settings_for(server, group_mode=mode)), server.channel("family", ann)
    async with slack.connect() as arrivals:
        asked = await channel.says(ann, "hello", mention=True)
        await next_incoming(arrivals)
        await channel.says(ann, "and?", thread=asked.ts)
        assert (await next_incoming(arrivals)).addressed is addressed
    await slack.close()


async def test_a_thread_in_a_private_chat_stays_private(server: SlackServer, slack: Slack, ann: User) -> None:
    chat = server.direct(ann)
    async with slack.connect() as arrivals:
        root = await chat.says(ann, "first")
        await chat.says(ann, "below it", thread=root.ts)
        first, below = await next_incoming(arrivals), await next_incoming(arrivals)
    assert first.address == Address("slack", chat.id)
    assert below.address == Address("slack", chat.id, "private", root.ts)


async def test_redelivered_event_is_received_once(server: SlackServer, slack: Slack, ann: User) -> None:
    chat = server.direct(ann)
    async with slack.connect() as arrivals:
        await chat.says(ann, "once")
        incoming = await next_incoming(arrivals)
        repeated = [await server.hub.repeat(server.hub.handed[0]) for _ in range(3)]
        await assert_no_other_update(server, arrivals, ann)
        for envelope in repeated:
            await wait_until_acknowledged(envelope)
    assert incoming.text == "once"


async def test_mention_reported_by_two_events_is_received_once(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    async with slack.connect() as arrivals:
        await channel.says(ann, "hello", mention=True)
        assert (await next_incoming(arrivals)).text == "hello"
        await assert_no_other_update(server, arrivals, ann)
    kinds = [one.payload["event"]["type"] for one in server.hub.handed]
    assert kinds == ["message", "app_mention", "message"]


async def test_an_edit_is_reported_and_a_preview_is_not(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    async with slack.connect() as arrivals:
        asked = await channel.says(ann, "waht?", mention=True)
        first = await next_incoming(arrivals)
        await channel.edits(ann, asked, asked.text)
        await channel.edits(ann, asked, f"<@{server.world.bot.id}> what?")
        changed = await next_incoming(arrivals)
        answer = await slack.send(first.address, Content(text="This."), "k")
        ours = next(one for one in channel.messages if one.ts == answer.message_id)
        await channel.edits(ann, ours, "That.")
        await assert_no_other_update(server, arrivals, ann)
    assert (changed.text, changed.edited, changed.message_id) == ("what?", True, asked.ts)
    assert changed.address == first.address
    assert changed.external_id != first.external_id


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("/status", "", "/status"),
        ("/goal", "learn &amp; rest", "/goal learn & rest"),
        ("/talaria", "status now", "/status now"),
        ("/talaria", "Status", "/status"),
        ("/talaria", "/unknown x", "/unknown x"),
        ("/talaria", "what is the weather?", "what is the weather?"),
        ("/talaria", "", "/help"),
    ],
)
async def test_slash_command_becomes_command_text(
    server: SlackServer, slack: Slack, ann: User, command: str, text: str, expected: str
) -> None:
    async with slack.connect() as arrivals:
        await server.direct(ann).runs(ann, command, text)
        incoming = await next_incoming(arrivals)
        await assert_no_other_update(server, arrivals, ann)
        await wait_until_acknowledged(server.hub.handed[0])
    assert (incoming.text, incoming.addressed) == (expected, True)
    assert incoming.sender.id == ann.id


async def test_command_is_acknowledged_before_it_is_confirmed(server: SlackServer, slack: Slack, ann: User) -> None:
    async with slack.connect() as arrivals:
        await server.direct(ann).runs(ann, "/status")
        await next_incoming(arrivals)
        await wait_until_acknowledged(server.hub.handed[0])
        await assert_no_other_update(server, arrivals, ann)


async def test_many_choices_are_shown_as_a_list(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    async with slack.connect() as arrivals:
        await channel.says(ann, "which?", mention=True)
        asked = await next_incoming(arrivals)
        content = Content(text="These.", buttons=tuple(_buttons(7)))
        ref = await slack.send(asked.address, content, "k")
        await channel.chooses(ann, channel.answers[0], "Choice 6")
        chosen = await next_incoming(arrivals)
    assert channel.answers[0].blocks[-1]["elements"][0]["type"] == "static_select"
    assert (chosen.button, chosen.message_id, chosen.address) == ("value:6", ref.message_id, asked.address)


async def test_a_reaction_is_reported_in_the_thread_of_its_message(server: SlackServer, ann: User) -> None:
    channel = server.channel("family", ann)
    first, second = Slack(settings_for(server)), Slack(settings_for(server))
    async with first.connect() as arrivals:
        await channel.says(ann, "hello", mention=True)
        asked = await next_incoming(arrivals)
        await first.send(asked.address, Content(text="Hello."), "k")
        await channel.reacts(ann, channel.answers[0], "tada")
        marked = await next_incoming(arrivals)
        await assert_no_other_update(server, arrivals, ann)
    async with second.connect() as arrivals:  # this one didn't post the message
        await channel.reacts(ann, channel.answers[0], "party_parrot")
        repeated = await next_incoming(arrivals)
        while repeated.reaction != ":party_parrot:":
            repeated = await next_incoming(arrivals)
    assert (marked.reaction, marked.address) == ("🎉", asked.address)
    assert repeated.address == asked.address
    for one in (first, second):
        await one.close()


async def test_a_recording_is_a_voice_note(server: SlackServer, slack: Slack, ann: User, tmp_path: Path) -> None:
    file = server.file("audio_message.m4a", b"sound", "audio/mp4", "slack_audio")
    async with slack.connect() as arrivals:
        await server.direct(ann).shares(ann, file, "listen")
        incoming = await next_incoming(arrivals)
        path = await slack.fetch(incoming.attachments[0], tmp_path)
    assert (incoming.text, incoming.attachments[0].kind) == ("listen", "voice")
    assert path.read_bytes() == b"sound"


async def test_messages_are_received_without_the_scopes_for_names(server: SlackServer, slack: Slack, ann: User) -> None:
    server.missing = {"users:read", "channels:read"}
    async with slack.connect() as arrivals:
        await server.channel("family", ann).says(ann, "hello", mention=True)
        incoming = await next_incoming(arrivals)
        await assert_no_other_update(server, arrivals, ann)
    assert (incoming.text, incoming.sender.id, incoming.sender.name, incoming.chat_name) == ("hello", ann.id, "", "")
    assert len([one for one in server.calls if one.method == "users.info"]) == 1


async def test_an_assistant_thread_has_suggestions_a_name_and_a_status(
    server: SlackServer, slack: Slack, ann: User
) -> None:
    chat = server.direct(ann)
    async with slack.connect() as arrivals:
        root = await chat.opens_assistant(ann)
        await chat.says(ann, "plan my\ntrip", thread=root.ts)
        incoming = await next_incoming(arrivals)
        await slack.show_typing(incoming.address)
        await assert_no_other_update(server, arrivals, ann)
    assert incoming.address == Address("slack", chat.id, "private", root.ts)
    shown = dict(server.world.assistant_views)
    assert [one["message"] for one in shown["prompts"]["prompts"]][1:] == ["/status", "/help"]
    assert (shown["title"]["title"], shown["status"]["thread_ts"]) == ("plan my trip", root.ts)


async def test_messages_are_received_without_assistant_methods(server: SlackServer, slack: Slack, ann: User) -> None:
    threads = ("setStatus", "setTitle", "setSuggestedPrompts")
    server.absent = {f"assistant.threads.{name}" for name in threads}
    chat = server.direct(ann)
    async with slack.connect() as arrivals:
        root = await chat.opens_assistant(ann)
        await chat.says(ann, "hello", thread=root.ts)
        incoming = await next_incoming(arrivals)
        for _ in range(3):
            await slack.show_typing(incoming.address)
        await assert_no_other_update(server, arrivals, ann)
    assert len([one for one in server.calls if one.method == "assistant.threads.setStatus"]) == 1


async def test_other_bots_joins_and_unreadable_events_are_ignored(server: SlackServer, slack: Slack, ann: User) -> None:
    chat = server.direct(ann)
    common: dict[str, object] = {
        "type": "message",
        "channel": chat.id,
        "ts": server.world.stamp(),
        "user": ann.id,
        "text": "x",
    }
    odd: list[dict[str, object]] = [
        common | {"bot_id": "B1"},
        common | {"subtype": "channel_join"},
        common | {"user": None},
        common | {"text": "", "files": None},
        common | {"files": "none"},
        {"type": "message", "subtype": "message_deleted", "channel": chat.id},
        {"type": "team_join"},
    ]
    async with slack.connect() as arrivals:
        for event in odd:
            await server.hub.post("events_api", {"type": "event_callback", "event": event})
        await server.hub.post("events_api", {"event": 7})
        await server.hub.post("interactive", {"type": "view_submission", "user": {"id": ann.id}})
        await server.hub.post("slash_commands", {"command": "/x"})
        await server.hub.post("something_new", {})
        await assert_no_other_update(server, arrivals, ann)
        for envelope in server.hub.handed[:-1]:
            await wait_until_acknowledged(envelope)


async def test_requested_reconnect_loses_no_message(server: SlackServer, slack: Slack, ann: User) -> None:
    async with slack.connect() as arrivals:
        await server.direct(ann).says(ann, "before")
        assert (await next_incoming(arrivals)).text == "before"
        await server.hub.ask_to_move()
        await server.direct(ann).says(ann, "after")
        assert (await next_incoming(arrivals)).text == "after"
        opened = [one for one in server.calls if one.method == "apps.connections.open"]
        assert len(opened) == 2


async def test_two_receivers_share_events_without_duplicates(server: SlackServer, ann: User) -> None:
    one, two = Slack(settings_for(server)), Slack(settings_for(server))
    chat = server.direct(ann)
    async with one.connect() as left, two.connect() as right:
        for number in range(4):
            await chat.says(ann, str(number))
        received = [(await next_incoming(source)).text for source in (left, left, right, right)]
    assert sorted(received) == ["0", "1", "2", "3"]
    assert not one.abilities.exclusive
    for platform in (one, two):
        await platform.close()


async def test_wrong_app_token_is_reported_without_the_token(server: SlackServer) -> None:
    slack = Slack(settings_for(server, app_token="xapp-wrong-and-secret"))
    with pytest.raises(BadCredentials) as refused:
        async with slack.connect():
            pass
    assert "xapp-wrong" not in str(refused.value)
    await slack.close()


@pytest.mark.slow
async def test_a_websocket_that_does_not_open_is_reported_in_time(server: SlackServer) -> None:
    slack = Slack(settings_for(server))
    server.hub.forget_tickets = True
    with pytest.raises(Unreachable):
        async with slack.connect():
            pass
    await slack.close()


def _buttons(number: int) -> list[Button]:
    return [Button(f"Choice {one}", f"value:{one}") for one in range(number)]
