"""The adapter as the gateway opens it: from options, secrets and the store."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.platforms.matrix.matrix_clients import BotAccount, Person

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.contracts.store import Store
from talaria.core.errors import Refused
from talaria.platforms.matrix.adapter import open_platform

AccountFactory = Callable[..., PlatformAccount]
pytestmark = pytest.mark.one_engine


@pytest.fixture
def account(store: Store, tmp_path: Path) -> AccountFactory:
    def make(secrets: dict[str, str], **options: str) -> PlatformAccount:
        return PlatformAccount(
            name="matrix",
            options=options,
            secret=secrets.get,
            store=store,
            folder=tmp_path / "m",
            closing=AsyncExitStack(),
        )

    return make


def secrets_of(bot_account: BotAccount) -> dict[str, str]:
    return {
        "MATRIX_HOMESERVER": bot_account.settings.homeserver + "/",
        "MATRIX_ACCESS_TOKEN": bot_account.account.token,
    }


async def receive_until(platform: Platform, last_text: str) -> list[str]:
    """Return the received texts up to a certain one, without confirming that one."""
    texts: list[str] = []
    async with platform.connect() as arriving:
        async for incoming in arriving:
            texts.append(incoming.text)
            if incoming.text == last_text:
                break
    return texts


async def connect_once(platform: Platform) -> None:
    async with platform.connect():
        pass


async def test_sync_position_survives_a_restart(
    account: AccountFactory, bot_account: BotAccount, alice: Person
) -> None:
    room = alice.room_with(bot_account.user_id)
    Person(alice.homeserver_client, bot_account.account).join(room)
    await connect_once(open_platform(account(secrets_of(bot_account))))
    alice.say(room, "one")
    assert await receive_until(open_platform(account(secrets_of(bot_account))), "one") == ["one"]
    alice.say(room, "two")
    assert await receive_until(open_platform(account(secrets_of(bot_account))), "two") == ["one", "two"]


async def test_account_can_be_opened_with_a_password(account: AccountFactory, bot_account: BotAccount) -> None:
    secrets = {"MATRIX_HOMESERVER": bot_account.settings.homeserver, "MATRIX_PASSWORD": bot_account.account.password}
    await connect_once(open_platform(account(secrets, user=bot_account.user_id)))


async def test_direct_invitations_of_strangers_are_accepted_if_enabled(
    account: AccountFactory, bot_account: BotAccount, carol: Person
) -> None:
    group = carol.room_with(bot_account.user_id)
    direct = carol.room_with(bot_account.user_id, is_direct=True)
    carol.say(direct, "hello?")
    await receive_until(open_platform(account(secrets_of(bot_account), invitations="direct")), "hello?")
    assert bot_account.user_id not in carol.members(group)


@pytest.mark.parametrize(
    ("secrets", "options"),
    [
        ({}, {}),
        ({"MATRIX_HOMESERVER": "https://x.example"}, {}),
        ({"MATRIX_HOMESERVER": "https://x.example", "MATRIX_PASSWORD": "p"}, {}),
        ({"MATRIX_HOMESERVER": "https://x.example", "MATRIX_ACCESS_TOKEN": "t"}, {"group_mode": "shy"}),
        ({"MATRIX_HOMESERVER": "https://x.example", "MATRIX_ACCESS_TOKEN": "t"}, {"grup_mode": "free"}),
    ],
)
async def test_missing_secrets_and_invalid_options_are_refused(
    account: AccountFactory, secrets: dict[str, str], options: dict[str, str]
) -> None:
    with pytest.raises(Refused, match=r"Matrix .*needs|platforms\.matrix"):
        open_platform(account(secrets, **options))


async def test_options_are_parsed_from_strings(account: AccountFactory) -> None:
    secrets = {"MATRIX_HOMESERVER": "https://x.example", "MATRIX_ACCESS_TOKEN": "t"}
    options = {"allowed": "@a:x.example, @b:x.example", "read_marks": "false", "file_limit": "1000", "poll": "PT20S"}
    assert open_platform(account(secrets, **options)).abilities.file_limit == 1000
