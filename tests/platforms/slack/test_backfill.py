"""What was said while nobody listened, and Slack has given up."""

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


def opened(server: SlackServer, store: Store) -> Slack:
    return Slack(settings_for(server), [], DurableThreadStore(store, "slack"), DurablePositionStore(store, "slack"))


async def test_another_process_finds_what_was_said_meanwhile(server: SlackServer, store: Store, ann: User) -> None:
    chat, channel = server.direct(ann), server.channel("family", ann)
    first, second = opened(server, store), opened(server, store)
    async with first.connect() as arrivals:
        await chat.says(ann, "hello")
        await next_incoming(arrivals)
        root = await channel.says(ann, "hello there", mention=True)
        asked = await next_incoming(arrivals)
        await first.send(asked.address, Content(text="Hello."), "k")
        await chat.says(ann, "done")
        await next_incoming(arrivals)
    before = len(chat.messages)
    said = await chat.says(ann, "are you there?")
    await channel.says(ann, "among ourselves")
    await channel.says(ann, "and you?", thread=root.ts)
    server.office.drop()
    async with second.connect() as arrivals:
        await chat.says(ann, "the end")
        heard = [await next_incoming(arrivals)]
        while heard[-1].text != "the end":
            heard.append(await next_incoming(arrivals))
    assert before == 2
    # What the first one had not noted comes along; the inbox knows it by its id.
    texts = [one.text for one in heard if one.text not in ("done", "hello there")]
    assert texts == ["are you there?", "among ourselves", "and you?", "the end"]
    found = next(one for one in heard if one.text == "are you there?")
    assert found.external_id == f"{chat.id}:{said.ts}"
    assert [one.addressed for one in heard if one.text in ("among ourselves", "and you?")] == [False, True]
    for platform in (first, second):
        await platform.close()


@pytest.mark.parametrize("trouble", ["missing", "failing"])
async def test_where_slack_does_not_tell_people_are_heard_all_the_same(
    server: SlackServer, store: Store, ann: User, trouble: str
) -> None:
    chat = server.direct(ann)
    first, second = opened(server, store), opened(server, store)
    async with first.connect() as arrivals:
        for text in ("hello", "again"):
            await chat.says(ann, text)
            await next_incoming(arrivals)
    server.office.drop()
    if trouble == "missing":
        server.missing = {"channels:history"}
    else:
        server.fail("conversations.history", "ratelimited", status=429, retry_after=60, times=9)
    async with second.connect() as arrivals:
        await chat.says(ann, "now")
        assert (await next_incoming(arrivals)).text == "now"
    for platform in (first, second):
        await platform.close()


async def test_after_a_short_break_nothing_is_looked_for(server: SlackServer, ann: User) -> None:
    chat = server.direct(ann)
    patient, busy = Slack(settings_for(server)), Slack(settings_for(server, away=timedelta(0)))
    for slack, times in ((patient, 0), (busy, 1)):
        async with slack.connect() as arrivals:
            for text in ("one", "two"):
                await chat.says(ann, text)
                await next_incoming(arrivals)
        server.office.drop()
        server.calls.clear()
        async with slack.connect():
            pass
        assert len([one for one in server.calls if one.method == "conversations.history"]) == times
        await slack.close()
