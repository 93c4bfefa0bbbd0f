"""Assignment of chats to workers: one worker at a time owns a chat and runs its session."""

import hashlib
from collections.abc import Iterable

from talaria.contracts.store import Transaction
from talaria.core.ids import WorkerId
from talaria.runtime.workers import is_alive, read_workers

_ASSIGNED = "keeper:"


def assign_worker(tx: Transaction, key: str, platform: str, worker: WorkerId) -> WorkerId:
    """Return the worker that owns a chat: the current one if alive, else one serving the network.

    ``worker`` is the caller, which counts as alive and as serving the network.
    """
    entry = tx.state.get(_ASSIGNED + key)
    if entry is not None:
        assigned = WorkerId(entry.value)
        if assigned == worker or is_alive(tx, assigned):
            return assigned
    serving = [one.worker for one in read_workers(tx) if platform in {network.name for network in one.networks}]
    chosen = _pick_worker(key, {worker, *serving})
    tx.state.put(_ASSIGNED + key, chosen)
    return chosen


def claim_chat(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Assign a chat to a worker; ``False`` if another worker that is alive owns it."""
    entry = tx.state.get(_ASSIGNED + key)
    if entry is not None and entry.value != worker:
        if is_alive(tx, WorkerId(entry.value)):
            return False
        entry = None
    if entry is None:
        tx.state.put(_ASSIGNED + key, worker)
    return True


def can_claim_chat(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Return whether `claim_chat` would succeed, without changing anything."""
    entry = tx.state.get(_ASSIGNED + key)
    return entry is None or entry.value == worker or not is_alive(tx, WorkerId(entry.value))


def is_assigned(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Return whether a worker owns a chat."""
    entry = tx.state.get(_ASSIGNED + key)
    return entry is not None and entry.value == worker


def _pick_worker(key: str, workers: Iterable[WorkerId]) -> WorkerId:
    """Return the same worker for the same key in any order of workers, with keys spread evenly."""
    return max(workers, key=lambda worker: hashlib.blake2b(f"{worker}\0{key}".encode(), digest_size=8).digest())
