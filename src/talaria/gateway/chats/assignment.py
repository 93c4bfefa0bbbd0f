"""Assignment of chats to workers: one worker at a time owns a chat; updates are forwarded to it."""

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.ids import SessionId, WorkerId
from talaria.runtime.workers import is_alive, read_workers

CHAT_WORKER = NamedValue("chat_worker", str)  # by session key
_encode = msgspec.json.Encoder().encode


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


_decode = msgspec.json.Decoder(ForwardedUpdate).decode


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
    return [_decode(body) for body in tx.forwarded_updates.take(worker)]


def take_orphaned_updates(tx: Transaction) -> list[ForwardedUpdate]:
    """Remove the updates forwarded to workers that have died and return them."""
    orphaned = [worker for worker in tx.forwarded_updates.workers() if not is_alive(tx, worker)]
    return [update for worker in orphaned for update in take_forwarded_updates(tx, worker)]
