"""Serve an ASGI application on a socket inside a larger process."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol, cast

import uvicorn

from talaria.core.errors import Refused
from talaria.http.connection import ConnectionLimits, ConnectionPool, LimitedProtocol
from talaria.http.errors import Problem
from talaria.http.messages import Receive, Reply, Scope, Send

_BACKLOG = 1024  # connections that the system accepts before we do
_KEEP_ALIVE = 75  # seconds; longer than common proxies, so that they close first
_ACCEPT_BATCH = 16  # few, so that excess connections are closed before the system refuses more
_SHUTDOWN_SECONDS = 5  # seconds for clients to read the end of their streams


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the process and the backlog unchanged."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(_BACKLOG)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class ServedApplication(Protocol):
    """An ASGI application that can refuse new requests; ``ending`` says so."""

    ending: bool

    def render_problem(self, problem: Problem) -> Reply:
        """Return an error as a complete reply."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""


@asynccontextmanager
async def serve_application(
    application: ServedApplication,
    host: str,
    port: int,
    jobs: asyncio.TaskGroup,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[str]:
    """Serve within the block and yield the address; requests still running shortly after it are cancelled.

    Raises `Refused` if the address can't be bound.
    """
    listener = _open_listener(host, port)
    connections = ConnectionPool(limits or ConnectionLimits(), application.render_problem)
    config = uvicorn.Config(
        cast("Any", application),
        http=cast("type[asyncio.Protocol]", partial(LimitedProtocol, connections)),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",  # requests are not logged, and our own errors are logged elsewhere
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=_ACCEPT_BATCH,
    )
    server = _Server(config)
    server_task = jobs.create_task(server.serve(sockets=[listener]))
    displayed_host = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{displayed_host}:{listener.getsockname()[1]}"
    finally:
        application.ending = server.should_exit = True
        await asyncio.wait([server_task])
        listener.close()


def _open_listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    # Without the protocol asyncio doesn't disable Nagle's algorithm, and each small reply is delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003 (takes no keyword)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise Refused(f"Can't listen on {host}:{port} ({reason}). Set api.host and api.port, or use --port.") from error
    return listener
