"""Opening the Discord adapter from settings."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from talaria.contracts.platform import PlatformAccount
from talaria.contracts.store import Store
from talaria.core.errors import Refused
from talaria.platforms.discord.adapter import Discord, open_platform
from talaria.testing.discord_server import DiscordServer
from talaria.testing.platform_suite import next_incoming


def account(store: Store, folder: Path, closing: AsyncExitStack, token: str | None, **options: str) -> PlatformAccount:
    return PlatformAccount(
        name="discord",
        options=options,
        secret={"DISCORD_BOT_TOKEN": token}.get,
        store=store,
        folder=folder,
        closing=closing,
        commands=[("help", "What there is")],
    )


async def test_options_reach_the_bot(server: DiscordServer, store: Store, tmp_path: Path) -> None:
    ann = server.user("Ann")
    quiet, free = server.channel("quiet"), server.channel("free")
    options = {"free_channels": f"{free.id}, 99", "patience": "PT3S"}
    async with AsyncExitStack() as closing:
        platform = open_platform(account(store, tmp_path, closing, server.token, api_url=server.api_url, **options))
        assert isinstance(platform, Discord)
        async with platform.connect() as arrivals:
            await quiet.says(ann, "anybody?")
            await free.says(ann, "anybody?")
            received = [await next_incoming(arrivals) for _ in range(2)]
    assert [(one.addressed, one.text) for one in received] == [(False, "anybody?"), (True, "anybody?")]
    assert [one["name"] for one in server.world.commands] == ["help"]


@pytest.mark.parametrize(
    ("token", "options"),
    [
        (None, {}),
        ("x", {"group_mode": "loud"}),
        ("x", {"grop_mode": "free"}),
        ("x", {"prompts": "Be brief."}),
        ("x", {"silence": "soon"}),
    ],
)
async def test_invalid_options_are_refused_with_the_name_of_the_network(
    store: Store, tmp_path: Path, token: str | None, options: dict[str, str]
) -> None:
    with pytest.raises(Refused, match=r"Discord|platforms\.discord"):
        open_platform(account(store, tmp_path, AsyncExitStack(), token, **options))
