"""Wait until a store receives the notifications of other processes."""

import asyncio

from talaria.contracts.store import Store, Subscription
from talaria.testing.wait import LIMIT

PROBE = "probe"


async def wait_until_connected(store: Store, other: Store) -> None:
    """Return when notifications of ``other`` reach the subscriptions of ``store``, which must have one already."""
    async with store.subscribe(PROBE) as probe, asyncio.timeout(LIMIT):
        while True:
            await other.write(lambda tx: tx.notify(PROBE))
            try:
                async with asyncio.timeout(0.2):
                    while not await probe.wait():
                        pass
                    return
            except TimeoutError:
                pass


async def clear(*subscriptions: Subscription) -> None:
    """Consume pending notifications, so that the next `wait` of each subscription blocks."""
    for subscription in subscriptions:
        if subscription.is_pending:
            await subscription.wait()


async def notified(subscription: Subscription) -> None:
    """Wait until a topic was notified."""
    async with asyncio.timeout(LIMIT):
        while not await subscription.wait():
            pass


async def wait_for_wake_up(subscription: Subscription) -> None:
    """Wait until the subscription wakes for any reason."""
    async with asyncio.timeout(LIMIT):
        await subscription.wait()
