"""Transports to an MCP server that detect its end. Imported with the MCP library."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from talaria.core.umask import INHERIT, person_umask
from talaria.tools.mcp.settings import McpServer

_LONGEST_LOG = 1_000_000  # bytes, after which a new log is started
_LONGEST_SILENCE = 300.0  # seconds; a server may hold a reply open for as long as a tool runs

Incoming = SessionMessage | Exception


@asynccontextmanager
async def transport(server: McpServer, log: Path, gone: asyncio.Event) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams to a server; ``gone`` is set when it has disconnected."""
    opened = _over_http(server) if server.url else _over_stdio(server, log)
    async with opened as (reading, writing):
        yield Watched(reading, gone), writing


class Watched:
    """A stream from a server that reports its end."""

    def __init__(self, stream: Any, gone: asyncio.Event) -> None:
        self._stream = stream
        self._gone = gone

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
            self._gone.set()
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


def _over_stdio(server: McpServer, log: Path) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Any]]:
        command, *arguments = _with_own_umask([server.command, *server.args])
        env = {**server.session_env, **server.env}
        parameters = StdioServerParameters(command=command, args=arguments, env=env, cwd=server.folder or None)
        with _opened_log(log) as file:
            async with stdio_client(parameters, errlog=file) as streams:
                yield streams

    return opened()


def _with_own_umask(argv: list[str]) -> list[str]:
    """Return a command that runs with the user's own file mode mask, like all their other commands."""
    mask = person_umask()
    if mask == INHERIT or shutil.which(argv[0]) is None:
        return argv
    return ["/bin/sh", "-c", 'umask "$0" && exec "$@"', f"{mask:o}", *argv]


def _over_http(server: McpServer) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Any, Any]]:
        timeout = httpx2.Timeout(server.connect_seconds, read=max(server.call_seconds, _LONGEST_SILENCE))
        async with (
            httpx2.AsyncClient(headers=server.headers, timeout=timeout) as http,
            streamable_http_client(server.url, http_client=http) as streams,
        ):
            yield streams

    return opened()


def _opened_log(log: Path) -> TextIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    long = log.exists() and log.stat().st_size > _LONGEST_LOG
    return log.open("w" if long else "a")
