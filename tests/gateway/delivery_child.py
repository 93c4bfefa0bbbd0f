"""Delivers until killed: ``python -m tests.gateway.delivery_child <network> <idempotent> <store …>``."""

import asyncio
import sys

from msgspec import structs
from tests.gateway.post_office import QUICK
from tests.storage.engines import place_of

from talaria.contracts.clock import SystemClock
from talaria.core.ids import new_worker_id
from talaria.gateway.delivery import Delivery
from talaria.testing.loopback_platform import CHATTY, LoopbackPlatform, LoopbackSettings


async def main() -> None:
    address, idempotent, *words = sys.argv[1:]
    abilities = structs.replace(CHATTY, idempotent=idempotent == "True", text_limit=100)
    store = place_of(words).open_store(SystemClock(), new_worker_id())
    await Delivery(
        store,
        LoopbackPlatform(LoopbackSettings(address=address, abilities=abilities)),
        pace=QUICK,
    ).serve()


asyncio.run(main())
