"""Leases: acquire, take over from dead owners, renew and release."""

import asyncio
import logging
from datetime import timedelta

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.leases import Lease
from talaria.core.aio import shield_until_done
from talaria.core.errors import LeaseLost, StoreError
from talaria.core.ids import SessionId, is_gone

log = logging.getLogger(__name__)


def take(tx: Transaction, name: str, duration: timedelta) -> Lease | None:
    """Acquire a lease that is free or whose owner has died; ``None`` if it is held."""
    acquired = tx.leases.acquire(name, duration)
    held = tx.leases.get(name) if acquired is None else None
    return tx.leases.take_over(held, duration) if held is not None and is_gone(held.owner) else acquired


def is_leased(tx: Transaction, name: str) -> bool:
    """Return whether the lease is held by an owner that may be alive."""
    held = tx.leases.get(name)
    return held is not None and not is_gone(held.owner)


def session_lease_name(session_id: SessionId) -> str:
    """Return the name of the lease of a session."""
    return f"session:{session_id}"


async def take_lease(store: Store, name: str, duration: timedelta) -> Lease | None:
    """Acquire a lease as `take` does; if cancelled meanwhile, release what was acquired."""

    async def undo(lease: Lease | None) -> None:
        if lease is not None:
            await release_lease(store, lease)

    return await shield_until_done(store.write(lambda tx: take(tx, name, duration)), undo=undo)


async def renew_lease(store: Store, lease: Lease, duration: timedelta) -> None:
    """Renew a lease until cancelled; raises `LeaseLost`, which ends the work that runs alongside.

    If the store refuses a renewal, the work continues: its writes are fenced by the lease.
    """
    while True:
        await asyncio.sleep(duration.total_seconds() / 3)
        try:
            await store.write(lambda tx: tx.leases.renew(lease, duration))
        except LeaseLost:
            raise
        except StoreError as error:
            log.warning("couldn't renew the lease of %s: %s", lease.name, error)


async def release_lease(store: Store, lease: Lease) -> None:
    """Release a lease; if the store refuses, it expires."""
    try:
        await store.write(lambda tx: tx.leases.release(lease))
    except StoreError as error:
        log.warning("couldn't release %s; it becomes free when its lease expires: %s", lease.name, error)


STORE_UNREACHABLE = "I can't reach my database right now. I'll answer as soon as it's back."
