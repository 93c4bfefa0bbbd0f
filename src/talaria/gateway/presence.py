"""That a gateway is alive, and how it is doing: leases and notes in the store that other processes read."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import LeaseLost, Refused, StoreError
from talaria.core.ids import WorkerId, is_gone
from talaria.sessions.homes import GATEWAY
from talaria.sessions.presence import WorkerStatus, forget_worker, write_worker

_PACE = 2.0

log = logging.getLogger(__name__)


class Presence:
    """Says in the store that this process is there; ``describe`` returns how it is doing."""

    def __init__(self, store: Store, worker: WorkerId, describe: Callable[[], WorkerStatus], lease: timedelta) -> None:
        self._store = store
        self._worker = worker
        self._describe = describe
        self._lease = lease

    async def claim(self, *, beside: bool) -> None:
        """Be the gateway of this store, or another worker of it; raises `Refused` where there is one already."""
        held = await self._store.write(self._acquire)
        if not held and not beside:
            raise Refused(
                "A gateway of this profile is running: `talaria gateway status` shows it, `talaria gateway stop` ends"
                " it. With --worker this one helps it."
            )

    async def serve(self) -> None:
        """Say so again and again until cancelled; then say that it is over."""
        try:
            while True:
                try:
                    await self._store.write(self._say)
                except StoreError as error:
                    log.warning("the gateway's state was not written: %s", error)
                await asyncio.sleep(_PACE)
        finally:
            await asyncio.shield(self._leave())

    def _acquire(self, tx: Transaction) -> bool:
        held = tx.leases.get(GATEWAY)
        if held is not None and held.owner != self._worker and is_gone(held.owner):
            return tx.leases.take_over(held, self._lease) is not None
        return held is None and tx.leases.acquire(GATEWAY, self._lease) is not None

    def _say(self, tx: Transaction) -> None:
        held = tx.leases.get(GATEWAY)
        if held is not None and held.owner == self._worker:
            tx.leases.renew(held, self._lease)
        else:
            self._acquire(tx)
        write_worker(tx, self._describe())

    async def _leave(self) -> None:
        def work(tx: Transaction) -> None:
            forget_worker(tx, self._worker)
            held = tx.leases.get(GATEWAY)
            if held is not None and held.owner == self._worker:
                tx.leases.release(held)

        try:
            await self._store.write(work)
        except (StoreError, LeaseLost) as error:
            log.warning("the gateway's end was not written: %s", error)
