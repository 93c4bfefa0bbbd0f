"""Status of gateway processes, as each reports it in the store."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.addresses import WEB
from talaria.core.ids import WorkerId, is_gone
from talaria.runtime.web_servers import has_server
from talaria.sessions.chat_directory import GATEWAY

NO_GATEWAY = "No gateway is running. Start one with `talaria gateway start`."
NO_WEB_SERVER = "The web app isn't running. Start it with `talaria web`."


def is_gateway_alive(tx: Transaction) -> bool:
    """Return whether a gateway runs on this store: it holds a lease while it does."""
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
    rooms: int = 0
    turns: int = 0
    waiting: int = 0
    undelivered: int = 0
    error: str = ""


GATEWAY_WORKER = NamedValue("gateway_worker", WorkerStatus)


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
