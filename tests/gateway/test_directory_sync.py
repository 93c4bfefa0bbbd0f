"""The directory lists chats before anyone has written there, if the network reports them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from talaria.contracts.platform import Incoming, KnownChat, PlatformCapabilities
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.aio import SupervisedTaskGroup
from talaria.gateway.receiver import DirectorySync, Receiver
from talaria.sessions.chat_directory import find_target, list_channels
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.adapter import LoopbackPlatform, LoopbackSettings
from talaria.testing.wait import until


class Listing(LoopbackPlatform):
    """A network that lists its chats."""

    listed = (KnownChat(Address("loopback", "-100", "group"), "Workshop"),)
    requests = 0

    async def chats(self) -> tuple[KnownChat, ...]:
        self.requests += 1
        return self.listed


@asynccontextmanager
async def connected(home: Path) -> AsyncIterator[tuple[Store, DirectorySync, Receiver, Listing]]:
    store = open_sqlite_store(home / "talaria.db")
    async with (
        LoopbackNetwork(PlatformCapabilities(text_limit=100, lists_chats=True)) as server,
        SupervisedTaskGroup() as jobs,
    ):
        able = server.platform().abilities
        platform = Listing(LoopbackSettings(address=server.address, abilities=able))
        network = Receiver(platform, store, reject_message, lease=timedelta(seconds=5))
        serving = jobs.create_task(network.serve())
        await server.until(lambda: server.receivers == 1)
        yield store, DirectorySync(store, [network]), network, platform
        serving.cancel()
        platform.close()
    await store.close()


async def reject_message(incoming: Incoming) -> str:
    raise AssertionError(incoming)


async def until_refreshed(directory: DirectorySync, network: Receiver, now: datetime) -> None:
    """Refresh as soon as the network is connected, which is a moment after the server sees it."""
    await until(lambda: directory.refresh(network, now))


async def test_listed_chat_is_a_target_by_its_name(tmp_path: Path) -> None:
    async with connected(tmp_path) as (store, directory, network, _):
        now = datetime.now(UTC)
        await until_refreshed(directory, network, now)
        assert [one.name for one in await store.read(list_channels)] == ["Workshop"]
        found = await store.read(lambda tx: find_target(tx, "loopback:workshop", ["loopback"]))
        assert found == Address("loopback", "-100", "group")


async def test_chats_are_listed_once_an_hour(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, directory, network, platform):
        now = datetime.now(UTC) + timedelta(seconds=1)
        await until_refreshed(directory, network, now)
        assert await directory.refresh(network, now + timedelta(minutes=59)) == 0
        assert await directory.refresh(network, now + timedelta(minutes=61)) == 1
        assert platform.requests == 2
