"""Running web servers of a store: `talaria web` finds one, and other processes know that the web app is served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.values import NamedValue
from talaria.core.errors import StoreError
from talaria.core.ids import WorkerId, is_gone, new_worker_id


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
