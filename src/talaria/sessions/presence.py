"""Gateway processes as other processes see them: what each last said of itself in the store."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.ids import WorkerId, is_gone

_NOTES = "gateway:worker:"

NetworkState = Literal["connecting", "connected", "waiting", "elsewhere", "refused"]


class NetworkStatus(Struct, frozen=True, kw_only=True):
    """How a network is doing, for `talaria gateway status`."""

    name: str
    state: NetworkState = "connecting"
    since: datetime | None = None
    error: str = ""
    received: int = 0
    last_received: datetime | None = None


class ModelStatus(Struct, frozen=True, kw_only=True):
    """A model that did not answer when it was last asked; ``failures`` are all since the process began."""

    name: str
    error: str
    since: datetime | None = None
    failures: int = 0


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """One gateway process, as it last said of itself; ``lease`` is for how many seconds that counts.

    ``models`` are those that cannot answer.
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
    rooms: int = 0
    turns: int = 0
    waiting: int = 0
    undelivered: int = 0
    error: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerStatus).decode


def encode_worker(status: WorkerStatus) -> str:
    """Return what a process says of itself, for another one that asks."""
    return _encode(status).decode()


def decode_worker(text: str | bytes) -> WorkerStatus:
    """Return what a process says of itself, or raise `msgspec.DecodeError`."""
    return _decode(text)


def write_worker(tx: Transaction, status: WorkerStatus) -> None:
    """Keep how a process is doing."""
    tx.state.put(_NOTES + status.worker, encode_worker(status))


def forget_worker(tx: Transaction, worker: WorkerId) -> None:
    """Forget a process that ends."""
    tx.state.delete(_NOTES + worker)


def read_workers(tx: Transaction, now: datetime | None = None) -> list[WorkerStatus]:
    """Return the gateway processes that are alive, oldest first."""
    found = [_decode(entry.value) for entry in tx.state.with_prefix(_NOTES)]
    moment = now or datetime.now(UTC)
    return sorted((one for one in found if _is_alive(one, moment)), key=lambda one: one.started)


def is_alive(tx: Transaction, worker: WorkerId) -> bool:
    """Tell whether a gateway process is there, as far as can be known."""
    entry = tx.state.get(_NOTES + worker)
    return entry is not None and _is_alive(_decode(entry.value), datetime.now(UTC))


def _is_alive(status: WorkerStatus, now: datetime) -> bool:
    return now - status.at < timedelta(seconds=status.lease) and not is_gone(status.worker)
