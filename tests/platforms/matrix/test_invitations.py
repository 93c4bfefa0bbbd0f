"""Whose invitations are accepted: those of people who may speak, as soon as they may."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.platforms.matrix.matrix_clients import BotAccount, Person

from talaria.access.policy import may_speak
from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import PlatformAccount, Sender
from talaria.contracts.store import Store
from talaria.contracts.stores.access import PairedPerson as Paired
from talaria.contracts.stores.access import PairingRules
from talaria.core.addresses import Address
from talaria.platforms.matrix.adapter import open_platform
from talaria.settings.model import Settings
from talaria.settings.sections.chats import AccessSettings, ChatNetworkSettings
from talaria.testing.wait import until

pytestmark = pytest.mark.one_engine


class Hall:
    """Our account as the gateway opens it, with settings that can change while it listens."""

    def __init__(self, bot_account: BotAccount, store: Store, folder: Path) -> None:
        self.settings = Settings()
        self._store = store
        self._bot_account = bot_account
        self._folder = folder

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen while the block runs."""
        async with asyncio.TaskGroup() as group, AsyncExitStack() as closing:
            listening = group.create_task(self._listen(self._account(closing)))
            yield
            listening.cancel()

    async def begin(self) -> None:
        """Connect, and end before anything is taken."""
        async with AsyncExitStack() as closing, open_platform(self._account(closing)).connect():
            pass

    def _account(self, closing: AsyncExitStack) -> PlatformAccount:
        secrets = {
            "MATRIX_HOMESERVER": self._bot_account.settings.homeserver,
            "MATRIX_ACCESS_TOKEN": self._bot_account.account.token,
        }
        return PlatformAccount(
            name="matrix",
            options={"poll": "PT1S"},
            secret=secrets.get,
            store=self._store,
            folder=self._folder,
            closing=closing,
            may_join=self._admits,
        )

    async def _listen(self, account: PlatformAccount) -> None:
        async with open_platform(account).connect() as arriving:
            async for _ in arriving:
                pass

    async def _admits(self, place: Address, sender: Sender) -> bool:
        now = SystemClock().now()
        return await self._store.read(lambda tx: may_speak(tx, self.settings, place, sender, now))


@pytest.fixture
def hall(bot_account: BotAccount, store: Store, tmp_path: Path) -> Hall:
    return Hall(bot_account, store, tmp_path / "matrix")


async def test_who_may_speak_may_invite_and_nobody_else(
    hall: Hall, bot_account: BotAccount, alice: Person, carol: Person, store: Store
) -> None:
    hall.settings = Settings(access=AccessSettings(allowed=(f"matrix:{alice.user_id}",)))
    strange, known = carol.room_with(bot_account.user_id), alice.room_with(bot_account.user_id)
    async with hall.open():
        await until(lambda: bot_account.user_id in alice.members(known))
        later = alice.room_with(bot_account.user_id)
        await until(lambda: bot_account.user_id in alice.members(later))
    assert bot_account.user_id not in carol.members(strange)


async def test_an_invitation_is_accepted_once_its_author_is_admitted(
    hall: Hall, bot_account: BotAccount, carol: Person, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    early = carol.room_with(bot_account.user_id)
    async with hall.open():
        late = carol.room_with(bot_account.user_id, is_direct=True)
        await until(lambda: caplog.text.count("ignored an invitation") == 2)
    assert bot_account.user_id not in carol.members(early) | carol.members(late)
    await store.write(lambda tx: tx.pairing.offer(Paired("matrix", carol.user_id), "hash", PairingRules()))
    await store.write(lambda tx: tx.pairing.approve("matrix", "hash", PairingRules()))
    async with hall.open():
        await until(lambda: bot_account.user_id in carol.members(early))
        await until(lambda: bot_account.user_id in carol.members(late))


async def test_an_invitation_of_before_the_first_start_is_not_forgotten(
    hall: Hall, bot_account: BotAccount, carol: Person
) -> None:
    room = carol.room_with(bot_account.user_id)
    await hall.begin()
    assert bot_account.user_id not in carol.members(room)
    hall.settings = Settings(access=AccessSettings(owners=(f"matrix:{carol.user_id}",)))
    async with hall.open():
        await until(lambda: bot_account.user_id in carol.members(room))


async def test_a_change_of_the_settings_is_noticed_while_it_listens(
    hall: Hall, bot_account: BotAccount, carol: Person
) -> None:
    async with hall.open():
        room = carol.room_with(bot_account.user_id)
        hall.settings = Settings(platforms={"matrix": ChatNetworkSettings(chats=(room,))})
        await until(lambda: bot_account.user_id in carol.members(room))


async def test_a_withdrawn_invitation_blocks_no_other_room(
    hall: Hall, bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    gone = carol.room_with(bot_account.user_id, preset="private_chat")
    async with hall.open():
        carol.call("POST", f"/rooms/{gone}/kick", {"user_id": bot_account.user_id})
        hall.settings = Settings(access=AccessSettings(everyone=True))
        room = alice.room_with(bot_account.user_id)
        await until(lambda: bot_account.user_id in alice.members(room))
    assert bot_account.user_id not in carol.members(gone)
