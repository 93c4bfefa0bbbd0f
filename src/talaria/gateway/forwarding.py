"""Forwarded updates: stored for the worker that owns a chat by the worker that received them."""

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId, WorkerId
from talaria.runtime.workers import is_alive


class ForwardedUpdate(Struct, frozen=True):
    """Update for a chat of another worker; ``item`` is its inbox number, 0 for buttons and reactions."""

    incoming: Incoming
    session_id: SessionId
    item: int


_encode = msgspec.json.Encoder().encode


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
