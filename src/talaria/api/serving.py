"""Serve an ASGI application on a socket, as a part of a process that does other things as well."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import cast

import uvicorn

from talaria.api.application import Application
from talaria.api.connection import ConnectionLimits, ConnectionPool, LimitedProtocol
from talaria.core.errors import Refused

_WAITING = 1024  # connections that the system accepts before we do
_KEEP_ALIVE = 75  # seconds; longer than usual proxies, so that it is they who close
_ACCEPTED_AT_ONCE = 16  # few, so that connections that are too many are closed before the system refuses more
_LAST_WORDS = 5  # seconds in which clients take the end of what they are told


class _Server(uvicorn.Server):
    """Leaves the signals of the process to its owner, and the queue of the system as long as it was."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(_WAITING)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def served(
    application: Application, host: str, port: int, jobs: asyncio.TaskGroup, limits: ConnectionLimits | None = None
) -> AsyncIterator[str]:
    """Serve within the block, and give the address; what is not answered soon behind it is cut off.

    Raises `Refused` where there cannot be listened.
    """
    listening = _listen(host, port)
    config = uvicorn.Config(
        application,
        http=cast("type[asyncio.Protocol]", partial(LimitedProtocol, ConnectionPool(limits or ConnectionLimits()))),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",  # what clients do is not the owner's business, and our own errors are logged before
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_LAST_WORDS,
        backlog=_ACCEPTED_AT_ONCE,
    )
    server = _Server(config)
    serving = jobs.create_task(server.serve(sockets=[listening]))
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown}:{listening.getsockname()[1]}"
    finally:
        application.ending = server.should_exit = True
        await asyncio.wait([serving])
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    # Without the protocol asyncio does not switch Nagle's algorithm off, and each small reply waits for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_WAITING)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        why = error.strerror or str(error)
        raise Refused(f"{host}:{port} cannot be listened at ({why}): set api.host and api.port, or --port.") from error
    return listening
