"""That a gateway is alive, and how it is doing: leases and notes in the store that other processes read."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.leases import Lease
from talaria.core.errors import LeaseLost, Refused, StoreError
from talaria.core.ids import WorkerId
from talaria.sessions.holding import take
from talaria.sessions.homes import GATEWAY
from talaria.sessions.presence import WorkerStatus, forget_worker, write_worker

_PACE = 2.0
_PATIENCE = 5.0

log = logging.getLogger(__name__)


class Presence:
    """Says in the store that this process is there; ``describe`` returns how it is doing.

    ``lapsed`` runs when it was not said for so long that others may have taken over what this process kept.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        describe: Callable[[], WorkerStatus],
        lease: timedelta,
        lapsed: Callable[[], Awaitable[object]],
    ) -> None:
        self._store = store
        self.worker = worker
        self._describe = describe
        self._lease = lease
        self._lapsed = lapsed
        self._held: Lease | None = None
        self._asked: float | None = None
        self._error = ""

    @property
    def trouble(self) -> str:
        """Why it cannot be said at the moment: what is wrong with the store; empty where nothing is."""
        if self._error:
            return self._error
        late = self._asked is not None and time.monotonic() - self._asked > _PATIENCE
        return f"The store does not answer within {_PATIENCE:.0f} s." if late else ""

    async def claim(self, *, beside: bool) -> bool:
        """Be the gateway of this store, or another worker of it; raises `Refused` where there is one already.

        Returns whether this one is the first, so that it does what is done once.
        """
        self._held = await self._store.write(self._acquire)
        if self._held is None and not beside:
            raise Refused(
                "A gateway of this profile is running: `talaria gateway status` shows it, `talaria gateway stop` ends"
                " it. With --worker this one helps it."
            )
        return self._held is not None

    async def serve(self) -> None:
        """Say so again and again until cancelled; then say that it is over."""
        said = time.monotonic()
        try:
            while True:
                try:
                    self._asked = time.monotonic()
                    self._held = await self._store.write(self._say)
                    self._recovered()
                    before, said = said, time.monotonic()
                    if said - before > self._lease.total_seconds():
                        await self._lapsed()
                except StoreError as error:
                    if self._error != str(error):
                        log.warning("the gateway's state is not written: %s", error)
                    self._error = str(error)
                self._asked = None
                await asyncio.sleep(min(_PACE, self._lease.total_seconds() / 3))
        finally:
            await asyncio.shield(self._leave())

    def _recovered(self) -> None:
        if self._error:
            log.info("the store can be used again")
        self._error = ""

    def _acquire(self, tx: Transaction) -> Lease | None:
        return take(tx, GATEWAY, self._lease)

    def _say(self, tx: Transaction) -> Lease | None:
        status = self._describe()
        waiting, undelivered = count_work(tx)
        write_worker(tx, structs.replace(status, waiting=waiting, undelivered=undelivered))
        try:
            return tx.leases.renew(self._held, self._lease) if self._held else self._acquire(tx)
        except LeaseLost:
            return self._acquire(tx)

    async def _leave(self) -> None:
        def work(tx: Transaction) -> None:
            forget_worker(tx, self.worker)
            if self._held is not None:
                tx.leases.release(self._held)

        try:
            await self._store.write(work)
        except StoreError as error:
            log.warning("the gateway's end was not written: %s", error)


def count_work(tx: Transaction) -> tuple[int, int]:
    """Return how many messages wait for a turn, and how many replies for their delivery."""
    waiting = sum(item.state == "waiting" for item in tx.inbox.unsettled())
    return waiting, sum(item.state != "failed" for item in tx.outbox.find())
