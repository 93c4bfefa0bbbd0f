"""Opening the Telegram adapter from settings."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.platforms.telegram.far_side import free_webhook

from talaria.contracts.platform import Content, PlatformAccount
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.platforms.telegram.adapter import Telegram, open_platform
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import TelegramServer


def account(store: Store, folder: Path, token: str | None, **options: str) -> PlatformAccount:
    return PlatformAccount(
        name="telegram",
        options=options,
        secret={"TELEGRAM_BOT_TOKEN": token}.get,
        store=store,
        folder=folder,
        closing=AsyncExitStack(),
        commands=[("help", "What there is")],
    )


async def test_options_reach_the_bot(server: TelegramServer, store: Store, tmp_path: Path) -> None:
    hook = free_webhook()
    platform = open_platform(
        account(
            store,
            tmp_path,
            server.token,
            base_url=server.base_url,
            base_file_url=server.base_file_url,
            group_mode="free",
            patience="PT3S",
            webhook_public_url=hook.public_url,
            webhook_port=str(hook.port),
        )
    )
    assert isinstance(platform, Telegram)
    ann = server.user("Ann")
    group = server.group("Family", ann)
    async with platform.connect() as arrivals:
        await group.says(ann, "anybody?")
        incoming = await next_incoming(arrivals)
        await platform.send(incoming.address, Content(text="Me."), "k")
    await platform.close()
    assert incoming.addressed
    assert incoming.address == Address("telegram", str(group.id), "group")
    assert [one.text for one in group.answers] == ["Me."]
    assert server.deliveries


@pytest.mark.parametrize(
    ("token", "options"),
    [
        (None, {}),
        ("1:x", {"group_mode": "loud"}),
        ("1:x", {"grop_mode": "free"}),
        ("1:x", {"webhook_port": "8443"}),
        ("1:x", {"poll": "soon"}),
    ],
)
def test_invalid_options_are_refused_with_the_name_of_the_network(
    store: Store, tmp_path: Path, token: str | None, options: dict[str, str]
) -> None:
    with pytest.raises(Refused, match=r"Telegram|platforms\.telegram"):
        open_platform(account(store, tmp_path, token, **options))
