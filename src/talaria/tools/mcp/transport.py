"""Transports to MCP servers: a child process, or streamable HTTP with headers and the tokens of a sign-in."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from talaria.core.errors import TalariaError
from talaria.tools.mcp.child_process import run_server
from talaria.tools.mcp.settings import McpServer

_LONGEST_SILENCE = 300.0  # seconds; a server may hold a reply open for as long as a tool runs
_UNAUTHORIZED = 401
Incoming = SessionMessage | Exception


@asynccontextmanager
async def transport(
    server: McpServer, log: Path, access: "HttpAccess", on_end: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams to a server; ``on_end`` is called when it has disconnected."""
    opened = _over_http(server, access) if server.url else run_server(server, log, access.report)
    async with opened as (reading, writing):
        yield Watched(reading, on_end), writing


class Watched:
    """A stream from a server that reports its end."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """Return the context that the library sends along with a message."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Incoming:
        """Return the next message."""
        message: Incoming = await self._stream.receive()
        return message

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            message: Incoming = await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise
        return message

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        handled: bool | None = await self._stream.__aexit__(kind, error, trace)
        return handled


class HttpAccess(httpx2.Auth):
    """Adds the tokens of a sign-in to requests; ``problem`` says why the server can't be used, if that is known."""

    def __init__(self, server: McpServer) -> None:
        self.problem = ""
        self._server = server

    def report(self, problem: str) -> None:
        """Store the first problem of a connection."""
        self.problem = self.problem or problem

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the current token, and once more with a renewed one if the server rejects it."""
        authorizer = self._server.authorizer
        try:
            with anyio.CancelScope(shield=True):  # the library would cancel a renewal again and again
                given = await authorizer.headers(request.method, str(request.url), b"") if authorizer else {}
            request.headers.update(given)
            response = yield request
            if response.status_code == _UNAUTHORIZED and authorizer is not None and given:
                with anyio.CancelScope(shield=True):
                    await authorizer.renew(given)
                request.headers.update(await authorizer.headers(request.method, str(request.url), b""))
                response = yield request
        except TalariaError as error:
            self.problem = str(error)
            raise httpx2.RequestError(str(error), request=request) from error
        if response.status_code == _UNAUTHORIZED:
            self.problem = f"it asks for a sign-in. Sign in with `talaria mcp login {self._server.name}`"


def _over_http(server: McpServer, access: HttpAccess) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Any]]:
        timeout = httpx2.Timeout(server.connect_seconds, read=max(server.call_seconds, _LONGEST_SILENCE))
        async with (
            httpx2.AsyncClient(headers=server.headers, timeout=timeout, auth=access) as http,
            streamable_http_client(server.url, http_client=http) as streams,
        ):
            yield streams

    return opened()
