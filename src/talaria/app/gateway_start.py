"""What happens once a gateway has started: hooks are told, and what BOOT.md asks for is done."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from talaria.app.house import House
from talaria.contracts.hooks import GATEWAY_START, Facts
from talaria.core.ids import WorkerId
from talaria.gateway.gateway import Line
from talaria.hooks.boot import Boot, read_boot


def tell_hooks(house: House, worker: WorkerId, lines: Sequence[Line]) -> None:
    """Tell hooks that this process serves chats now."""
    facts: Facts = {
        "worker": worker,
        "pid": os.getpid(),
        "version": house.identity.version,
        "profile": house.profile.name,
        "platforms": " ".join(line.network.status.name for line in lines),
    }
    house.hooks.fire(GATEWAY_START, facts)


async def do_boot(house: House, folder: Path, lines: Sequence[Line], jobs: asyncio.TaskGroup) -> None:
    """Do what BOOT.md asks for, and let what came of it be delivered."""
    text = await asyncio.to_thread(read_boot, house.profile.folder)
    platforms = [line.network.status.name for line in lines]
    if text and await Boot(house, folder, platforms, jobs).run(text):
        for line in lines:
            line.delivery.wake()
