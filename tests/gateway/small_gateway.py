"""The path of a message in this process, from the network into turns and back, without anything that looks again.

What is overlooked here stays unanswered: nobody takes up what waits, as a whole gateway does every second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from msgspec import structs

from talaria.app.house import House, open_house
from talaria.app.media import MediaDesk, open_media
from talaria.commands.registry import REGISTRY
from talaria.commands.using import usable
from talaria.contracts.follower import Follower
from talaria.contracts.platform import Platform
from talaria.core.addresses import Address, audience_of
from talaria.core.ids import SessionId, new_worker_id
from talaria.gateway.access import Access
from talaria.gateway.delivery import Delivery
from talaria.gateway.doorman import Doorman, place_owner
from talaria.gateway.intake import Intake
from talaria.gateway.network import Network
from talaria.gateway.room import Door, Room
from talaria.gateway.rooms import Rooms
from talaria.gateway.shelter import Shelter
from talaria.gateway.streaming import Stage
from talaria.sessions.chat import ChatWish
from talaria.sessions.prospect import Prospect
from talaria.settings.chats import ChatNetwork
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets

_LEASE = timedelta(seconds=15)


@dataclass(frozen=True)
class SmallGateway:
    house: House
    rooms: Rooms
    intake: Intake
    network: Network


@asynccontextmanager
async def served(
    home: Path,
    platform: Platform,
    model: str,
    *,
    settings: str = "",
    provider: str = "",
    follower: Follower | None = None,
) -> AsyncIterator[SmallGateway]:
    """Serve a network while the block runs; ``follower`` hears of turns.

    ``settings`` are lines for config.toml, which begin in the section of access; ``provider`` those for the model's.
    """
    profile = Profiles(home).active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    profile.config_file.write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        f"{provider}[access]\neveryone = true\n{settings}"
    )
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    async with Shelter() as jobs, AsyncExitStack() as stack:
        loaded = load_settings(profile, environment)
        house = open_house(loaded, profile, read_secrets(profile, environment), environment, stack)
        house.processes.attend(jobs, stack, always=True)
        delivery = Delivery(house.store, platform)
        worker = new_worker_id()
        stage = Stage(store=house.store, platform=platform, throttle=delivery.throttle, worker=worker)
        door = Door(
            house=house,
            abilities=platform.abilities,
            wake_delivery=delivery.wake,
            stage=stage,
            is_owner=lambda user_id: Access(house.settings).is_owner(platform.name, user_id),
            manner=lambda: house.settings.platforms.get(platform.name, ChatNetwork()),
        )
        media = open_media(house, {platform.name: platform}, lambda _: delivery.wake(), stack)
        maker = _Maker(door, home, jobs, follower, media)
        rooms = Rooms(house.store, worker, maker, maker.prospect, jobs, cap=house.settings.gateway.rooms)
        stack.push_async_callback(rooms.close)
        commands = usable(REGISTRY, terminal=False)
        intake = Intake(
            house.store,
            platform.name,
            lambda: Doorman(house.settings, platform.name, commands, None),
            rooms,
            lambda: house.settings.gateway.busy,
            house.end_workplace,
            house.hooks,
        )
        network = Network(platform, house.store, intake.take, lease=_LEASE, meanwhile=intake.meanwhile)
        serving = [jobs.create_task(network.serve()), jobs.create_task(delivery.serve())]
        yield SmallGateway(house, rooms, intake, network)
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


class _Maker:
    """Makes rooms."""

    def __init__(
        self, door: Door, folder: Path, jobs: asyncio.TaskGroup, follower: Follower | None, media: MediaDesk
    ) -> None:
        self._door = door
        self._folder = folder
        self._jobs = jobs
        self._unpack = media.unpacker.unpack
        self._more = (media.spoken,) if follower is None else (media.spoken, follower)

    async def prospect(self, address: Address, session_id: SessionId) -> Prospect:
        return await self._door.house.prospect(structs.replace(self._wish(address.platform), resume=session_id))

    def __call__(self, key: str, address: Address) -> Room:
        shared = place_owner(address, self._door.manner())
        wish = structs.replace(self._wish(address.platform), owner=shared, audience=audience_of(address))
        return Room(key, address, wish, self._door, self._jobs)

    def _wish(self, platform: str) -> ChatWish:
        followers = self._more
        return ChatWish(
            source=platform,
            folder=self._folder,
            titled=False,
            lasting=True,
            followers=followers,
            unpack=self._unpack,
            file_limit=self._door.abilities.file_limit,
        )
