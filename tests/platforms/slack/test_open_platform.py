"""Opening the Slack adapter from settings."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from talaria.contracts.platform import PlatformAccount
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import Refused
from talaria.platforms.slack.adapter import Slack, open_platform
from talaria.platforms.slack.threads import JOINED_THREAD, DurableThreadStore
from talaria.testing.platform_suite import next_incoming
from talaria.testing.slack_server import APP_TOKEN, TOKEN, SlackServer, User

BOTH = {"SLACK_BOT_TOKEN": TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}


def account(store: Store, folder: Path, secrets: dict[str, str], options: dict[str, str]) -> PlatformAccount:
    return PlatformAccount(
        name="slack",
        options=options,
        secret=secrets.get,
        store=store,
        folder=folder,
        closing=AsyncExitStack(),
        commands=[("help", "What there is")],
    )


async def test_options_reach_the_app(server: SlackServer, store: Store, tmp_path: Path, ann: User) -> None:
    options = {"base_url": server.base_url, "group_mode": "free", "channel_replies": "channel", "command": "/Ask"}
    opened = account(store, tmp_path, BOTH, options)
    platform = open_platform(opened)
    assert isinstance(platform, Slack)
    channel = server.channel("family", ann)
    async with platform.connect() as arrivals:
        await channel.says(ann, "anybody?")
        incoming = await next_incoming(arrivals)
        await channel.runs(ann, "/ask", "help me")
        command = await next_incoming(arrivals)
    assert (incoming.addressed, incoming.address.thread_id) == (True, "")
    assert command.text == "/help me"
    await opened.closing.aclose()


@pytest.mark.parametrize(
    ("secrets", "options"),
    [
        ({}, {}),
        ({"SLACK_BOT_TOKEN": TOKEN}, {}),
        (BOTH, {"group_mode": "loud"}),
        (BOTH, {"grop_mode": "free"}),
        (BOTH, {"patience": "soon"}),
    ],
)
def test_invalid_options_are_refused_with_the_name_of_the_network(
    store: Store, tmp_path: Path, secrets: dict[str, str], options: dict[str, str]
) -> None:
    with pytest.raises(Refused, match=r"Slack|platforms\.slack"):
        open_platform(account(store, tmp_path, secrets, options))


@pytest.mark.one_engine
async def test_oldest_joined_threads_are_removed(store: Store) -> None:
    state_store = DurableThreadStore(store, "slack")
    stamps = [f"{1_700_000_000 + number}.000100" for number in range(20_003)]

    def fill(tx: Transaction) -> None:
        for stamp in stamps:
            JOINED_THREAD.write(tx, f"slack:{stamp}:C1", value=True)

    await store.write(fill)
    await state_store.clear()
    assert [await state_store.has("C1", stamps[number]) for number in (2, 3, -1)] == [False, True, True]
