"""Leases: acquire, take over from dead owners, renew and release; retry of failed store writes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.leases import Lease
from talaria.core.aio import LoopTimer, shield_until_done
from talaria.core.errors import LeaseLost, StoreBusy, StoreError, StoreFull, StoreGone
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


T = TypeVar("T")


STORE_UNREACHABLE = "I can't reach my database right now. I'll answer as soon as it's back."


# With these errors, nothing was written. With a broken connection, that is uncertain.
RETRYABLE_ERRORS: tuple[type[StoreError], ...] = (StoreBusy, StoreFull, StoreGone)


_RETRY_DELAY = 1.0


_NOTICE_AFTER = 5.0


async def retry_write(
    write: Callable[[], Awaitable[T]],
    on_store_wait: Callable[[], None] = lambda: None,
    *,
    patience: float = _NOTICE_AFTER,
) -> T:
    """Call ``write`` until the store accepts it, and return its result.

    ``on_store_wait`` is called once if that takes longer than ``patience`` seconds. Raises errors that waiting does not
    fix, and those that leave in doubt whether something was written.
    """
    logged = ""
    warning = LoopTimer(patience, on_store_wait)
    try:
        while True:
            try:
                return await write()
            except RETRYABLE_ERRORS as error:
                if logged != str(error):
                    logged = str(error)
                    log.warning("waiting for the store: %s", error)
                await asyncio.sleep(_RETRY_DELAY)
    finally:
        warning.cancel()
