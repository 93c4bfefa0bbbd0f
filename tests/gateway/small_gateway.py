"""The path of a message in this process, from the network into turns and back, without anything that looks again.

What is overlooked here stays unanswered: nobody takes up what waits, as a whole gateway does every second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from talaria.app.house import House, open_house
from talaria.contracts.follower import Follower
from talaria.contracts.platform import Platform
from talaria.core.addresses import Address
from talaria.core.ids import new_worker_id
from talaria.gateway.delivery import Delivery
from talaria.gateway.doorman import Doorman
from talaria.gateway.intake import Intake
from talaria.gateway.network import Network
from talaria.gateway.replies import ReplyFollower
from talaria.gateway.room import Door, Room
from talaria.gateway.rooms import Rooms
from talaria.gateway.streaming import Stage
from talaria.sessions.chat import ChatWish
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets

_LEASE = timedelta(seconds=15)


@dataclass(frozen=True)
class SmallGateway:
    house: House
    rooms: Rooms
    intake: Intake


@asynccontextmanager
async def served(
    home: Path, platform: Platform, model: str, *, settings: str = "", follower: Follower | None = None
) -> AsyncIterator[SmallGateway]:
    """Serve a network while the block runs; ``settings`` are lines for config.toml, ``follower`` hears of turns."""
    profile = Profiles(home).active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    profile.config_file.write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        f"[access]\neveryone = true\n{settings}"
    )
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        loaded = load_settings(profile, environment)
        house = open_house(loaded, profile, read_secrets(profile, environment), environment, stack)
        delivery = Delivery(house.store, platform)
        stage = Stage(store=house.store, platform=platform, gate=delivery.gate, worker=new_worker_id())
        door = Door(house=house, abilities=platform.abilities, wake_delivery=delivery.wake, stage=stage)
        rooms = Rooms(house.store, _Maker(door, home, jobs, follower))
        stack.push_async_callback(rooms.close)
        doorman = Doorman(house.settings, platform.name, (), None)
        intake = Intake(house.store, platform, lambda: doorman, rooms, home, lambda: house.settings.gateway.busy)
        serving = [
            jobs.create_task(Network(platform, house.store, intake.take, lease=_LEASE).serve()),
            jobs.create_task(delivery.serve()),
        ]
        yield SmallGateway(house, rooms, intake)
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


class _Maker:
    """Makes rooms."""

    def __init__(self, door: Door, folder: Path, jobs: asyncio.TaskGroup, follower: Follower | None) -> None:
        self._door = door
        self._folder = folder
        self._jobs = jobs
        self._more = () if follower is None else (follower,)

    def __call__(self, key: str, address: Address) -> Room:
        followers = (ReplyFollower(self._door.wake_delivery), *self._more)
        wish = ChatWish(source=address.platform, folder=self._folder, titled=False, followers=followers)
        return Room(key, address, wish, self._door, self._jobs)
