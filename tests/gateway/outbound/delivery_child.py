"""Delivers until killed: ``python -m tests.gateway.outbound.delivery_child <network> <idempotent> <store …>``."""

import asyncio
import sys
from datetime import timedelta

from msgspec import structs
from tests.gateway.outbound.delivery_fixture import QUICK
from tests.storage.engines import parse_store_location

from talaria.contracts.clock import SystemClock
from talaria.core.ids import new_worker_id
from talaria.gateway.outbound.delivery import Delivery
from talaria.testing.loopback_platform import CHATTY, LoopbackPlatform, LoopbackSettings

PATIENCE = timedelta(seconds=30)  # a call that times out on a busy machine would be posted twice without any kill


async def main() -> None:
    address, idempotent, *store_arguments = sys.argv[1:]
    abilities = structs.replace(CHATTY, idempotent=idempotent == "True", text_limit=100)
    store = parse_store_location(store_arguments).open_store(SystemClock(), new_worker_id())
    await Delivery(
        store,
        LoopbackPlatform(LoopbackSettings(address=address, abilities=abilities, patience=PATIENCE.total_seconds())),
        pace=structs.replace(QUICK, call=PATIENCE),
    ).serve()


asyncio.run(main())
