"""Heartbeat of a gateway: leases and status in the store, read by other processes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from msgspec import structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.turns import Lease
from talaria.core.aio import shield_until_done
from talaria.core.errors import LeaseLost, Refused, StoreError
from talaria.core.ids import WorkerId
from talaria.runtime.workers import WorkerStatus, forget_worker, take, write_worker
from talaria.sessions.chat_directory import GATEWAY

_INTERVAL = 2.0
_LATE_SECONDS = 5.0

log = logging.getLogger(__name__)


class WorkerHeartbeat:
    """Heartbeat of this worker in the store; ``describe`` returns its status.

    ``lapsed`` runs after a gap longer than the lease, when other workers may have taken over its chats.
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
        self._on_lapsed = lapsed
        self._gateway_lease: Lease | None = None
        self._write_started: float | None = None
        self._error = ""

    @property
    def trouble(self) -> str:
        """The current store error that prevents heartbeats; empty if there is none."""
        if self._error:
            return self._error
        late = self._write_started is not None and time.monotonic() - self._write_started > _LATE_SECONDS
        return f"The store didn't answer within {_LATE_SECONDS:.0f} s." if late else ""

    async def claim(self, *, as_worker: bool) -> bool:
        """Claim the role of the store's gateway; raises `Refused` if it is taken, unless ``as_worker`` is set.

        Returns whether this worker got the role and so runs the tasks that are done once.
        """
        self._gateway_lease = await self._store.write(self._acquire)
        if self._gateway_lease is None and not as_worker:
            raise Refused(
                "A gateway is already running for this profile. `talaria gateway status` shows it and `talaria gateway"
                " stop` stops it. To add a worker to it, use --worker."
            )
        return self._gateway_lease is not None

    async def serve(self) -> None:
        """Send heartbeats until cancelled, then remove the status."""
        last_written = time.monotonic()
        try:
            while True:
                try:
                    self._write_started = time.monotonic()
                    await shield_until_done(self._beat())
                    self._log_recovery()
                    before, last_written = last_written, time.monotonic()
                    if last_written - before > self._lease.total_seconds():
                        await self._on_lapsed()
                except StoreError as error:
                    if self._error != str(error):
                        log.warning("couldn't store the gateway's state: %s", error)
                    self._error = str(error)
                self._write_started = None
                await asyncio.sleep(min(_INTERVAL, self._lease.total_seconds() / 3))
        finally:
            await asyncio.shield(self._write_end())

    def _log_recovery(self) -> None:
        if self._error:
            log.info("the store is available again")
        self._error = ""

    async def _beat(self) -> None:
        """Write the status; a lease acquired with it is known even if the worker is stopped meanwhile."""
        self._gateway_lease = await self._store.write(self._write_status)

    def _acquire(self, tx: Transaction) -> Lease | None:
        return take(tx, GATEWAY, self._lease)

    def _write_status(self, tx: Transaction) -> Lease | None:
        status = self._describe()
        waiting, undelivered = count_pending(tx)
        write_worker(tx, structs.replace(status, waiting=waiting, undelivered=undelivered))
        try:
            return tx.leases.renew(self._gateway_lease, self._lease) if self._gateway_lease else self._acquire(tx)
        except LeaseLost:
            return self._acquire(tx)

    async def _write_end(self) -> None:
        def work(tx: Transaction) -> None:
            forget_worker(tx, self.worker)
            if self._gateway_lease is not None:
                tx.leases.release(self._gateway_lease)

        try:
            await self._store.write(work)
        except StoreError as error:
            log.warning("couldn't store that the gateway stopped: %s", error)


def count_pending(tx: Transaction) -> tuple[int, int]:
    """Return the numbers of messages pending in inboxes and of replies in the outbox."""
    waiting = sum(item.state == "waiting" for item in tx.inbox.unsettled())
    return waiting, sum(item.state != "failed" for item in tx.outbox.find())
