"""Messages that were missed while disconnected, after Slack stopped retrying."""

from datetime import timedelta

import pytest
from tests.platforms.slack.far_side import settings_for

from talaria.contracts.platform import Content
from talaria.contracts.store import Store
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.receiver import DurablePositionStore
from talaria.platforms.slack.threads import DurableThreadStore
from talaria.testing.platform_suite import next_incoming
from talaria.testing.slack_server import SlackServer, User


def open_adapter(server: SlackServer, store: Store) -> Slack:
    return Slack(settings_for(server), [], DurableThreadStore(store, "slack"), DurablePositionStore(store, "slack"))


async def test_another_process_reads_missed_messages(server: SlackServer, store: Store, ann: User) -> None:
    chat, channel = server.direct(ann), server.channel("family", ann)
    first, second = open_adapter(server, store), open_adapter(server, store)
    async with first.connect() as arrivals:
        await chat.says(ann, "hello")
        await next_incoming(arrivals)
        root = await channel.says(ann, "hello there", mention=True)
        asked = await next_incoming(arrivals)
        await first.send(asked.address, Content(text="Hello."), "k")
        await chat.says(ann, "done")
        await next_incoming(arrivals)
    before = len(chat.messages)
    posted = await chat.says(ann, "are you there?")
    await channel.says(ann, "among ourselves")
    await channel.says(ann, "and you?", thread=root.ts)
    server.hub.drop()
    async with second.connect() as arrivals:
        await chat.says(ann, "the end")
        received = [await next_incoming(arrivals)]
        while received[-1].text != "the end":
            received.append(await next_incoming(arrivals))
    assert before == 2
    # Messages that the first process hadn't recorded are repeated; the inbox recognises their ids.
    texts = [one.text for one in received if one.text not in ("done", "hello there")]
    assert texts == ["are you there?", "among ourselves", "and you?", "the end"]
    found = next(one for one in received if one.text == "are you there?")
    assert found.external_id == f"{chat.id}:{posted.ts}"
    assert [one.addressed for one in received if one.text in ("among ourselves", "and you?")] == [False, True]
    for platform in (first, second):
        await platform.close()


@pytest.mark.parametrize("trouble", ["missing", "failing"])
async def test_new_messages_are_received_if_the_history_cannot_be_read(
    server: SlackServer, store: Store, ann: User, trouble: str
) -> None:
    chat = server.direct(ann)
    first, second = open_adapter(server, store), open_adapter(server, store)
    async with first.connect() as arrivals:
        for text in ("hello", "again"):
            await chat.says(ann, text)
            await next_incoming(arrivals)
    server.hub.drop()
    if trouble == "missing":
        server.missing = {"channels:history"}
    else:
        server.fail("conversations.history", "ratelimited", status=429, retry_after=60, times=9)
    async with second.connect() as arrivals:
        await chat.says(ann, "now")
        assert (await next_incoming(arrivals)).text == "now"
    for platform in (first, second):
        await platform.close()


async def test_history_is_not_read_after_a_short_break(server: SlackServer, ann: User) -> None:
    chat = server.direct(ann)
    patient, busy = Slack(settings_for(server)), Slack(settings_for(server, away=timedelta(0)))
    for slack, times in ((patient, 0), (busy, 1)):
        async with slack.connect() as arrivals:
            for text in ("one", "two"):
                await chat.says(ann, text)
                await next_incoming(arrivals)
        server.hub.drop()
        server.calls.clear()
        async with slack.connect():
            pass
        assert len([one for one in server.calls if one.method == "conversations.history"]) == times
        await slack.close()
