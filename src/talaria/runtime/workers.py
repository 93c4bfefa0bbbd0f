"""Ownership: leases of sessions and jobs, gateway workers with their chats and updates, and web servers."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.turns import Lease
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.addresses import WEB
from talaria.core.aio import shield_until_done
from talaria.core.errors import LeaseLost, StoreError
from talaria.core.ids import SessionId, WorkerId, is_gone, new_worker_id

SESSION_LEASE = "session:"  # followed by the id of the session
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
    return f"{SESSION_LEASE}{session_id}"


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
NO_GATEWAY = "No gateway is running. Start one with `talaria gateway start`."
NO_WEB_SERVER = "The web app isn't running. Start it with `talaria web`."


def is_gateway_alive(tx: Transaction) -> bool:
    """Return whether a gateway runs on this store: it holds a lease while it does."""
    from talaria.sessions.chat_directory import GATEWAY  # noqa: PLC0415 (not loaded for a turn)

    lease = tx.leases.get(GATEWAY)
    return lease is not None and not is_gone(lease.owner)


def is_platform_served(tx: Transaction, platform: str) -> bool:
    """Return whether a process delivers to a platform: a web server to the web app, a gateway to networks."""
    return has_server(tx) if platform == WEB else is_gateway_alive(tx)


NetworkState = Literal["connecting", "connected", "waiting", "elsewhere", "refused"]


class NetworkStatus(Struct, frozen=True, kw_only=True):
    """Status of a network, for `talaria gateway status`."""

    name: str
    state: NetworkState = "connecting"
    since: datetime | None = None
    error: str = ""
    received: int = 0
    last_received: datetime | None = None


class ModelStatus(Struct, frozen=True, kw_only=True):
    """A model whose last call failed; ``failures`` counts all failures since the process started."""

    name: str
    error: str
    since: datetime | None = None
    failures: int = 0


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """Last reported status of a gateway process; it is valid for ``lease`` seconds.

    ``models`` are those whose last call failed.
    """

    worker: WorkerId
    pid: int
    host: str
    started: datetime
    at: datetime
    version: str
    lease: float = 20.0
    address: str = ""
    networks: tuple[NetworkStatus, ...] = ()
    models: tuple[ModelStatus, ...] = ()
    open_sessions: int = 0
    turns: int = 0
    waiting: int = 0
    undelivered: int = 0
    error: str = ""


GATEWAY_WORKER = NamedValue("gateway_worker", WorkerStatus)
GATEWAY_RESTARTS = "gateway_restarts"  # topic notified when a restart is requested
REQUESTED_RESTART = NamedValue("requested_restart", datetime)


def request_restart(tx: Transaction) -> None:
    """Request a restart of all gateway processes that have started before now."""
    REQUESTED_RESTART.write(tx, SINGLE, datetime.now(UTC))
    tx.notify(GATEWAY_RESTARTS)


def is_restart_requested(tx: Transaction, started: datetime) -> bool:
    """Return whether a restart was requested after a process has started."""
    requested = REQUESTED_RESTART.get(tx, SINGLE)
    return requested is not None and requested > started


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerStatus).decode


def encode_worker(status: WorkerStatus) -> str:
    """Encode the status of a process."""
    return _encode(status).decode()


def decode_worker(text: str | bytes) -> WorkerStatus:
    """Decode the status of a process, or raise `msgspec.DecodeError`."""
    return _decode(text)


def write_worker(tx: Transaction, status: WorkerStatus) -> None:
    """Store the status of a process."""
    GATEWAY_WORKER.write(tx, status.worker, status)


def forget_worker(tx: Transaction, worker: WorkerId) -> None:
    """Remove the status of a process that ends."""
    GATEWAY_WORKER.delete(tx, worker)


def read_workers(tx: Transaction, now: datetime | None = None) -> list[WorkerStatus]:
    """Return the status of the live gateway processes, oldest first."""
    found = GATEWAY_WORKER.items(tx).values()
    at_time = now or datetime.now(UTC)
    return sorted((one for one in found if _is_alive(one, at_time)), key=lambda one: one.started)


def is_alive(tx: Transaction, worker: WorkerId) -> bool:
    """Return whether a gateway process is alive, judging by its last report."""
    status = GATEWAY_WORKER.get(tx, worker)
    return status is not None and _is_alive(status, datetime.now(UTC))


def _is_alive(status: WorkerStatus, now: datetime) -> bool:
    return now - status.at < timedelta(seconds=status.lease) and not is_gone(status.worker)


CHAT_WORKER = NamedValue("chat_worker", str)  # by session key


def assign_worker(tx: Transaction, key: str, platform: str, worker: WorkerId) -> WorkerId:
    """Return the worker that owns a chat: the current one if alive, else one serving the network.

    ``worker`` is the caller, which counts as alive and as serving the network.
    """
    assigned = _get_worker(tx, key)
    if assigned is not None and (assigned == worker or is_alive(tx, assigned)):
        return assigned
    serving = [one.worker for one in read_workers(tx) if platform in {network.name for network in one.networks}]
    chosen = _pick_worker(key, {worker, *serving})
    CHAT_WORKER.write(tx, key, chosen)
    return chosen


def claim_chat(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Assign a chat to a worker; ``False`` if another worker that is alive owns it."""
    assigned = _get_worker(tx, key)
    if assigned == worker:
        return True
    if assigned is not None and is_alive(tx, assigned):
        return False
    CHAT_WORKER.write(tx, key, worker)
    return True


def can_claim_chat(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Return whether `claim_chat` would succeed, without changing anything."""
    assigned = _get_worker(tx, key)
    return assigned is None or assigned == worker or not is_alive(tx, assigned)


def is_assigned(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Return whether a worker owns a chat."""
    return _get_worker(tx, key) == worker


def _get_worker(tx: Transaction, key: str) -> WorkerId | None:
    assigned = CHAT_WORKER.get(tx, key)
    return WorkerId(assigned) if assigned is not None else None


def _pick_worker(key: str, workers: Iterable[WorkerId]) -> WorkerId:
    """Return the same worker for the same key in any order of workers, with keys spread evenly."""
    return max(workers, key=lambda worker: hashlib.blake2b(f"{worker}\0{key}".encode(), digest_size=8).digest())


class ForwardedUpdate(Struct, frozen=True):
    """Update for a chat of another worker; ``item`` is its inbox number, 0 for buttons and reactions."""

    incoming: Incoming
    session_id: SessionId
    item: int


_decode_update = msgspec.json.Decoder(ForwardedUpdate).decode


def forwarding_topic(worker: WorkerId) -> str:
    """Return the topic that is notified when an update is forwarded to a worker."""
    return f"letters:{worker}"


def forward_update(tx: Transaction, to: WorkerId, update: ForwardedUpdate) -> None:
    """Forward an update to the worker that its chat is assigned to."""
    tx.forwarded_updates.add(to, update.session_id, _encode(update).decode())
    tx.notify(forwarding_topic(to))


def has_forwarded_updates(tx: Transaction) -> bool:
    """Return whether there are forwarded updates for any worker."""
    return bool(tx.forwarded_updates.workers())


def take_forwarded_updates(tx: Transaction, worker: WorkerId) -> list[ForwardedUpdate]:
    """Remove the updates forwarded to a worker from the store and return them, oldest first."""
    return [_decode_update(body) for body in tx.forwarded_updates.take(worker)]


def take_orphaned_updates(tx: Transaction) -> list[ForwardedUpdate]:
    """Remove the updates forwarded to workers that have died and return them."""
    orphaned = [worker for worker in tx.forwarded_updates.workers() if not is_alive(tx, worker)]
    return [update for worker in orphaned for update in take_forwarded_updates(tx, worker)]


class WebServer(Struct, frozen=True):
    """A running server and its address."""

    worker: WorkerId
    address: str


_SERVERS = NamedValue("web_server", WebServer)


@asynccontextmanager
async def announced_server(store: Store, address: str) -> AsyncIterator[None]:
    """Let `find_server` know of a server within the block."""
    worker = new_worker_id()
    await store.write(lambda tx: _SERVERS.write(tx, worker, WebServer(worker, address)))
    try:
        yield
    finally:
        with suppress(StoreError):
            await store.write(lambda tx: _SERVERS.delete(tx, worker))


def find_server(tx: Transaction) -> str:
    """Return the address of a running server of this machine, or an empty string; forget those that are gone."""
    found = ""
    for worker, server in _SERVERS.items(tx).items():
        if is_gone(server.worker):
            _SERVERS.delete(tx, worker)
        else:
            found = server.address
    return found


def has_server(tx: Transaction) -> bool:
    """Return whether a web server of this store is running."""
    return any(not is_gone(server.worker) for server in _SERVERS.items(tx).values())
