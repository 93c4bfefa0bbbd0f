"""Which worker keeps the room of a place: whoever hears something that is said there brings it to that one."""

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId, WorkerId, new_id
from talaria.sessions.presence import is_alive, read_workers

_KEEPER, _LETTER = "keeper:", "letter:"


class Letter(Struct, frozen=True):
    """What arrived at one worker and concerns a room of another; ``item`` is its number in the inbox."""

    incoming: Incoming
    session_id: SessionId
    item: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Letter).decode


def topic(worker: WorkerId) -> str:
    """Return the topic of the hints that there are letters for a worker."""
    return f"letters:{worker}"


def keeper_of(tx: Transaction, key: str, platform: str, worker: WorkerId) -> WorkerId:
    """Return the worker that keeps the room of a place: the one that did, else one of those who serve the network.

    ``worker`` is the one that asks.
    """
    entry = tx.state.get(_KEEPER + key)
    if entry is not None:
        keeper = WorkerId(entry.value)
        if keeper == worker or is_alive(tx, keeper):
            return keeper
    serving = [one.worker for one in read_workers(tx) if platform in {network.name for network in one.networks}]
    chosen = _chosen(key, {worker, *serving})
    tx.state.put(_KEEPER + key, chosen)
    return chosen


def keep(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Become the keeper of a room unless another worker that is alive is; ``False`` where one is."""
    entry = tx.state.get(_KEEPER + key)
    if entry is not None and entry.value != worker:
        if is_alive(tx, WorkerId(entry.value)):
            return False
        entry = None
    if entry is None:
        tx.state.put(_KEEPER + key, worker)
    return True


def may_keep(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Return whether `keep` would succeed, without changing anything."""
    entry = tx.state.get(_KEEPER + key)
    return entry is None or entry.value == worker or not is_alive(tx, WorkerId(entry.value))


def is_kept(tx: Transaction, key: str, worker: WorkerId) -> bool:
    """Tell whether a worker is the keeper of a room."""
    entry = tx.state.get(_KEEPER + key)
    return entry is not None and entry.value == worker


def write_letter(tx: Transaction, to: WorkerId, letter: Letter) -> None:
    """Leave a letter for a worker."""
    tx.state.put(f"{_LETTER}{to}:{new_id()}", _encode(letter).decode())


def has_letters(tx: Transaction) -> bool:
    """Tell whether there are letters for anybody."""
    return bool(tx.state.with_prefix(_LETTER))


def take_letters(tx: Transaction, worker: WorkerId) -> list[Letter]:
    """Take the letters for a worker out of the store, oldest first."""
    entries = tx.state.with_prefix(f"{_LETTER}{worker}:")
    for entry in entries:
        tx.state.delete(entry.key)
    return [_decode(entry.value) for entry in entries]


def take_lost_letters(tx: Transaction) -> list[Letter]:
    """Take the letters for workers that are no more."""
    found = {entry.key.removeprefix(_LETTER).rpartition(":")[0] for entry in tx.state.with_prefix(_LETTER)}
    return [
        letter for one in sorted(found) if not is_alive(tx, WorkerId(one)) for letter in take_letters(tx, WorkerId(one))
    ]


def _chosen(key: str, workers: Iterable[WorkerId]) -> WorkerId:
    """Return the same worker for the same key, however they are ordered, and spread the keys evenly over them."""
    return max(workers, key=lambda worker: hashlib.blake2b(f"{worker}\0{key}".encode(), digest_size=8).digest())
