"""The MCP servers of one session: started once, shared by all its agents, closed with it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from talaria.contracts.tool import Tool
from talaria.core.errors import NotFound
from talaria.tools.mcp.settings import McpServer

if TYPE_CHECKING:
    from talaria.tools.mcp.connection import Connection


class McpServers:
    """Owner of the connections; `serve` runs for as long as they are needed."""

    def __init__(self, servers: Sequence[McpServer], log_folder: Path) -> None:
        self._connections: list[Connection] = []
        if servers:
            connect = _load_connection()
            self._connections = [connect(server, log_folder) for server in servers]

    async def serve(self) -> None:
        """Keep all servers connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(connection.serve())

    async def ready(self) -> None:
        """Wait until each server has connected or failed to."""
        for connection in self._connections:
            await connection.tried()

    @property
    def tools(self) -> list[Tool]:
        """Return the tools of all servers; for a disconnected one, its last known tools."""
        return [tool for connection in self._connections for tool in connection.tools]

    @property
    def problems(self) -> dict[str, str]:
        """Return why servers are not connected, by name."""
        return {connection.name: connection.problem for connection in self._connections if connection.problem}


def _load_connection() -> "type[Connection]":
    try:
        from talaria.tools.mcp.connection import Connection  # noqa: PLC0415 (loaded when a server is set: needs mcp)
    except ModuleNotFoundError as error:
        from talaria.core.extras import install_command  # noqa: PLC0415 (loaded when the package is missing)

        command = install_command("mcp")
        raise NotFound(f"MCP support is not installed. Install it with `{command}`.") from error
    return Connection


_TO_CLEAN_UP = 2.0  # seconds that an unresponsive server may take to end


class _Running(NamedTuple):
    settings: McpServer
    servers: McpServers
    task: "asyncio.Task[None]"


class SessionServers:
    """Servers by name. One stays connected until `close` as long as its settings stay the same.

    A server gets the environment variables that the session has when it starts.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    @property
    def is_running(self) -> bool:
        """Return whether any server is still running."""
        return any(not one.task.done() for one in self._running.values())

    async def join(
        self, wanted: Sequence[McpServer], log_folder: Path, jobs: asyncio.TaskGroup
    ) -> tuple[list[Tool], dict[str, str]]:
        """Connect to exactly these servers; return their tools, and the problems of those not connected, by name.

        New connections are tasks of ``jobs``. Raises `NotFound` if the library is missing.
        """
        for name in [name for name in self._running if name not in {one.name for one in wanted}]:
            self._close(name)
        for server in wanted:
            if not self._is_same(server):
                self._close(server.name)
                servers = McpServers([server], log_folder)
                self._running[server.name] = _Running(server, servers, jobs.create_task(servers.serve()))
        joined = [self._running[one.name].servers for one in wanted]
        with suppress(TimeoutError):
            async with asyncio.timeout(max(one.connect_seconds for one in wanted) + _TO_CLEAN_UP):
                for servers in joined:
                    await servers.ready()
        tools = [tool for servers in joined for tool in servers.tools]
        return tools, {name: problem for servers in joined for name, problem in servers.problems.items()}

    def close(self) -> None:
        """End all of them; their processes end soon after."""
        for name in list(self._running):
            self._close(name)

    def _is_same(self, server: McpServer) -> bool:
        running = self._running.get(server.name)
        if running is None or running.task.done():
            return False
        # The session's variables change when it moves; that is no reason to lose the server's state.
        return structs.replace(running.settings, session_env={}) == structs.replace(server, session_env={})

    def _close(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            running.task.cancel()
