"""Supervisor of the gateway process: runs its services and heartbeat, drains turns at shutdown, restarts on request."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, structs

from talaria.agent.model_calls import ModelHealth, ModelState
from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.turns import Lease
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.addresses import Address
from talaria.core.aio import StopSignal, shield_until_done
from talaria.core.errors import LeaseLost, Refused, StoreError
from talaria.core.formatting import pluralize
from talaria.core.ids import SessionId, WorkerId
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.dispatcher import Dispatcher
from talaria.gateway.outbound.delivery import Delivery
from talaria.gateway.receiver import Receiver
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turns import list_pending_sessions
from talaria.runtime.workers import (
    GATEWAY_RESTARTS,
    ModelStatus,
    NetworkStatus,
    WorkerStatus,
    forget_worker,
    is_restart_requested,
    take,
    write_worker,
)
from talaria.sessions.chat_directory import GATEWAY

_HEARTBEAT_SECONDS = 2.0
_LATE_HEARTBEAT_SECONDS = 5.0
_POLL_INTERVAL = 0.05

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
        late = self._write_started is not None and time.monotonic() - self._write_started > _LATE_HEARTBEAT_SECONDS
        return f"The store didn't answer within {_LATE_HEARTBEAT_SECONDS:.0f} s." if late else ""

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
                await asyncio.sleep(min(_HEARTBEAT_SECONDS, self._lease.total_seconds() / 3))
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
    waiting = sum(item.state == "waiting" for item in tx.inbox.list_unsettled())
    return waiting, sum(item.state != "failed" for item in tx.outbox.find())


class NetworkPipeline(Struct, frozen=True):
    """Receiver, delivery and dispatcher of one network."""

    network: Receiver
    delivery: Delivery
    dispatcher: Dispatcher


class GatewaySupervisor:
    """Supervisor of the tasks of one gateway.

    After a stop it waits up to ``patience`` for turns to end, and again for replies to be sent. ``services`` are
    background services that run until the stop. ``missing`` are the networks that could not be opened, ``models`` is
    the state of the models used so far, and ``mask`` hides secrets. ``problems`` are messages for the status, by
    subject.
    """

    def __init__(
        self,
        store: Store,
        version: str,
        lines: Sequence[NetworkPipeline],
        chats: ChatRegistry,
        *,
        services: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
        lease: timedelta,
        patience: timedelta,
    ) -> None:
        self.lines = lines
        self._chats = chats
        self._services = services
        self.missing: Sequence[NetworkStatus] = ()
        self._patience = patience.total_seconds()
        self._version = version
        self.started = datetime.now(UTC)
        self.address = ""
        self.problems: dict[str, str] = {}
        self.models = ModelHealth()
        self.mask: Callable[[str], str] = str
        self.stopping = False
        self.turns_at_stop = 0
        self._interrupted: tuple[SessionId, ...] = ()
        self._lease = lease
        self.presence = WorkerHeartbeat(store, chats.worker, self.status, lease, chats.release_lost)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set."""
        async with asyncio.TaskGroup() as group:
            receiving = [group.create_task(line.network.serve()) for line in self.lines]
            receiving += [group.create_task(serve()) for serve in (self._chats.serve, *self._services)]
            delivering = [group.create_task(line.delivery.serve()) for line in self.lines]
            delivering.append(group.create_task(self.presence.serve()))
            await stop.wait()
            self.stopping, self.turns_at_stop = True, len(self._chats.busy)
            for task in receiving:
                task.cancel()
            await self._wait_until(self._are_chats_idle, "turns were interrupted and resume at the next start")
            self._interrupted = self._list_busy()
            await self._chats.close()
            await self._wait_until(self._is_all_delivered, "replies stay in the outbox until the next start")
            for task in delivering:
                task.cancel()

    def status(self) -> WorkerStatus:
        """Return the status of this process, with secrets masked in error texts."""
        networks = (*(line.network.status for line in self.lines), *self.missing)
        return WorkerStatus(
            worker=self._chats.worker,
            pid=os.getpid(),
            host=os.uname().nodename,
            started=self.started,
            at=datetime.now(UTC),
            version=self._version,
            lease=self._lease.total_seconds(),
            address=self.address,
            networks=tuple(structs.replace(one, error=self.mask(one.error)) for one in networks),
            open_sessions=len(self._chats),
            turns=len(self._chats.busy),
            error=self.mask(" ".join(filter(None, (*self.problems.values(), self.presence.trouble)))),
            models=tuple(self._build_model_status(one) for one in self.models.states if one.error),
        )

    @property
    def unfinished(self) -> tuple[SessionId, ...]:
        """The sessions whose turns the shutdown interrupted, or would interrupt now."""
        return self._interrupted or self._list_busy()

    def _list_busy(self) -> tuple[SessionId, ...]:
        return tuple(room.active_session.session_id for room in self._chats.busy)

    async def _wait_until(self, done: Callable[[], Awaitable[bool]], consequence: str) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while not await done():  # noqa: ASYNC110 - other processes may finish it
                    await asyncio.sleep(_POLL_INTERVAL)
        except (TimeoutError, StoreError) as error:
            log.warning("the gateway stops with unfinished work: %s (%s)", consequence, str(error) or "time is up")

    async def _are_chats_idle(self) -> bool:
        """Return whether no turns run except those that wait for an answer."""
        return all(room.active_session.chat.questions.waiting for room in self._chats.busy)

    async def _is_all_delivered(self) -> bool:
        for line in self.lines:
            if line.network.status.state == "connected" and not await line.delivery.is_idle():
                return False
        return True

    def _build_model_status(self, state: ModelState) -> ModelStatus:
        return ModelStatus(name=state.model, error=self.mask(state.error), since=state.since, failures=state.failures)


class _RestartRequest(Struct, frozen=True):
    session_id: SessionId
    address: Address
    at: datetime


RESTART_REQUEST = NamedValue("restart_request", _RestartRequest)


class RestartControl:
    """Restart control for chats; implements `GatewayControl`.

    ``stop`` ends the process, and its service starts it again. ``patience`` is the drain time in seconds.
    """

    def __init__(self, store: Store, stop: StopSignal, patience: float) -> None:
        self._store = store
        self._stop = stop
        self._patience = patience

    async def restart(self, session_id: SessionId, requested: Address) -> float:
        """Request a restart and notify the chat afterwards; return the seconds that running turns have to finish."""
        request = _RestartRequest(session_id, requested, datetime.now(UTC))
        await self._store.write(lambda tx: RESTART_REQUEST.write(tx, SINGLE, request))
        self._stop.request_restart("`/restart` in a chat")
        return self._patience


async def follow_restart_requests(store: Store, stop: StopSignal) -> None:
    """Restart the process when the web app requests it."""
    started = datetime.now(UTC)
    async with store.subscribe(GATEWAY_RESTARTS) as subscription:
        while True:
            await subscription.wait()
            try:
                is_requested = await store.read(lambda tx: is_restart_requested(tx, started))
            except StoreError:
                continue
            if is_requested:
                stop.request_restart("a request in the web app")
                return


def announce_restart(tx: Transaction, version: str) -> None:
    """Notify the chat that asked for a restart, once, that it is done."""
    requested = RESTART_REQUEST.get(tx, SINGLE)
    if requested is None:
        return
    RESTART_REQUEST.delete(tx, SINGLE)
    resumed = len(list_pending_sessions(tx))
    rest = f" {pluralize(resumed, 'interrupted conversation')} resumes." if resumed == 1 else ""
    rest = f" {resumed} interrupted conversations resume." if resumed > 1 else rest
    queue_notice(
        tx, requested.session_id, requested.address, Content(text=f"The gateway is back, version {version}.{rest}")
    )
