"""Room invitations: accepted as soon as their sender is allowed to talk to the bot."""

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


class ListeningAccount:
    """A bot account opened as the gateway does, with settings that can change while it listens."""

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

    async def connect_once(self) -> None:
        """Connect and disconnect before a message is received."""
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
            may_join=self._may_join,
        )

    async def _listen(self, account: PlatformAccount) -> None:
        async with open_platform(account).connect() as arriving:
            async for _ in arriving:
                pass

    async def _may_join(self, address: Address, sender: Sender) -> bool:
        now = SystemClock().now()
        return await self._store.read(lambda tx: may_speak(tx, self.settings, address, sender, now))


@pytest.fixture
def listener(bot_account: BotAccount, store: Store, tmp_path: Path) -> ListeningAccount:
    return ListeningAccount(bot_account, store, tmp_path / "matrix")


async def test_only_invitations_of_allowed_senders_are_accepted(
    listener: ListeningAccount, bot_account: BotAccount, alice: Person, carol: Person, store: Store
) -> None:
    listener.settings = Settings(access=AccessSettings(allowed=(f"matrix:{alice.user_id}",)))
    strangers_room, allowed_room = carol.room_with(bot_account.user_id), alice.room_with(bot_account.user_id)
    async with listener.open():
        await until(lambda: bot_account.user_id in alice.members(allowed_room))
        later = alice.room_with(bot_account.user_id)
        await until(lambda: bot_account.user_id in alice.members(later))
    assert bot_account.user_id not in carol.members(strangers_room)


async def test_invitation_is_accepted_after_its_sender_was_paired(
    listener: ListeningAccount, bot_account: BotAccount, carol: Person, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    early = carol.room_with(bot_account.user_id)
    async with listener.open():
        late = carol.room_with(bot_account.user_id, is_direct=True)
        await until(lambda: caplog.text.count("ignored an invitation") == 2)
    assert bot_account.user_id not in carol.members(early) | carol.members(late)
    await store.write(lambda tx: tx.pairing.offer(Paired("matrix", carol.user_id), "hash", PairingRules()))
    await store.write(lambda tx: tx.pairing.approve("matrix", "hash", PairingRules()))
    async with listener.open():
        await until(lambda: bot_account.user_id in carol.members(early))
        await until(lambda: bot_account.user_id in carol.members(late))


async def test_invitation_from_before_the_first_start_is_accepted_later(
    listener: ListeningAccount, bot_account: BotAccount, carol: Person
) -> None:
    room = carol.room_with(bot_account.user_id)
    await listener.connect_once()
    assert bot_account.user_id not in carol.members(room)
    listener.settings = Settings(access=AccessSettings(owners=(f"matrix:{carol.user_id}",)))
    async with listener.open():
        await until(lambda: bot_account.user_id in carol.members(room))


async def test_changed_settings_apply_to_invitations_while_listening(
    listener: ListeningAccount, bot_account: BotAccount, carol: Person
) -> None:
    async with listener.open():
        room = carol.room_with(bot_account.user_id)
        listener.settings = Settings(platforms={"matrix": ChatNetworkSettings(chats=(room,))})
        await until(lambda: bot_account.user_id in carol.members(room))


async def test_a_withdrawn_invitation_blocks_no_other_room(
    listener: ListeningAccount, bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    gone = carol.room_with(bot_account.user_id, preset="private_chat")
    async with listener.open():
        carol.call("POST", f"/rooms/{gone}/kick", {"user_id": bot_account.user_id})
        listener.settings = Settings(access=AccessSettings(everyone=True))
        room = alice.room_with(bot_account.user_id)
        await until(lambda: bot_account.user_id in alice.members(room))
    assert bot_account.user_id not in carol.members(gone)
