"""Leases as everybody takes and holds them: from whoever was killed, too, and renewed beside the work."""

import asyncio
import logging
from datetime import timedelta

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.leases import Lease
from talaria.core.errors import LeaseLost, StoreError
from talaria.core.ids import SessionId, is_gone

log = logging.getLogger(__name__)


def take(tx: Transaction, name: str, duration: timedelta) -> Lease | None:
    """Take what is free, or what somebody held who was killed; ``None`` where somebody holds it."""
    taken = tx.leases.acquire(name, duration)
    held = tx.leases.get(name) if taken is None else None
    return tx.leases.take_over(held, duration) if held is not None and is_gone(held.owner) else taken


def is_held(tx: Transaction, name: str) -> bool:
    """Tell whether somebody holds this who may be alive."""
    held = tx.leases.get(name)
    return held is not None and not is_gone(held.owner)


def lane_of(session_id: SessionId) -> str:
    """Return the name of what the worker holds that works on a conversation."""
    return f"session:{session_id}"


async def hold(store: Store, lease: Lease, duration: timedelta) -> None:
    """Renew a lease until cancelled; losing it ends the work beside this.

    Where the store does not let it be renewed the work goes on: whatever it writes is fenced by the lease.
    """
    while True:
        await asyncio.sleep(duration.total_seconds() / 3)
        try:
            await store.write(lambda tx: tx.leases.renew(lease, duration))
        except LeaseLost:
            raise
        except StoreError as error:
            log.warning("the lease of %s was not renewed: %s", lease.name, error)


async def let_go(store: Store, lease: Lease) -> None:
    """Release a lease; where the store does not let it be released it lapses."""
    try:
        await store.write(lambda tx: tx.leases.release(lease))
    except StoreError as error:
        log.warning("%s is free when its lease lapses: %s", lease.name, error)
