"""The MCP servers of one session: started once, shared by all its agents, closed with it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from talaria.contracts.mcp import ServerPrompt, ServerState
from talaria.contracts.tool import Tool
from talaria.core.errors import NotFound, ToolFailed
from talaria.core.messages import Part
from talaria.tools.mcp.settings import McpServer

if TYPE_CHECKING:
    from talaria.tools.mcp.connection import Connection


class McpServers:
    """Owner of the connections; `serve` runs for as long as they are needed."""

    def __init__(self, servers: Sequence[McpServer], log_folder: Path) -> None:
        self.connections: list[Connection] = []
        if servers:
            connect = _load_connection()
            self.connections = [connect(server, log_folder) for server in servers]

    async def serve(self) -> None:
        """Keep all servers connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            for connection in self.connections:
                group.create_task(connection.serve())

    async def wait_until_ready(self) -> None:
        """Wait until each server has connected or failed to."""
        for connection in self.connections:
            await connection.wait_for_first_attempt()

    @property
    def tools(self) -> list[Tool]:
        """Return the tools of all servers; for a disconnected one, its last known tools."""
        return [tool for connection in self.connections for tool in connection.tools]

    @property
    def problems(self) -> dict[str, str]:
        """Return why servers are not connected, by name."""
        return {connection.name: connection.problem for connection in self.connections if connection.problem}


def _load_connection() -> "type[Connection]":
    try:
        from talaria.tools.mcp.connection import Connection  # noqa: PLC0415 (loaded when a server is set: needs mcp)
    except ModuleNotFoundError as error:
        from talaria.core.installation import install_command  # noqa: PLC0415 (loaded when the package is missing)

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
        self, configured: Sequence[McpServer], log_folder: Path, jobs: asyncio.TaskGroup
    ) -> tuple[list[Tool], dict[str, str]]:
        """Connect to exactly these servers; return their tools, and the problems of those not connected, by name.

        New connections are tasks of ``jobs``. Raises `NotFound` if the library is missing.
        """
        self.close([name for name in self._running if name not in {one.name for one in configured}])
        for server in configured:
            if not self._is_same(server):
                self.close([server.name])
                servers = McpServers([server], log_folder)
                self._running[server.name] = _Running(server, servers, jobs.create_task(servers.serve()))
        joined = [self._running[one.name].servers for one in configured]
        with suppress(TimeoutError):
            async with asyncio.timeout(max((one.connect_seconds for one in configured), default=0) + _TO_CLEAN_UP):
                for server, servers in zip(configured, joined, strict=True):
                    await servers.wait_until_ready()
                    for connection in servers.connections:
                        await connection.move_roots(server.roots)
        return self.tools, {name: problem for servers in joined for name, problem in servers.problems.items()}

    @property
    def tools(self) -> list[Tool]:
        """Return the tools of all servers, in the order of their settings."""
        return [tool for connection in self._connections for tool in connection.tools]

    @property
    def revision(self) -> tuple[tuple[str, int], ...]:
        """Return a value that changes with what the servers offer."""
        return tuple((connection.name, connection.revision) for connection in self._connections)

    def states(self) -> list[ServerState]:
        """Return the state of each server."""
        return [connection.state for connection in self._connections]

    def prompts(self) -> list[ServerPrompt]:
        """Return the prompts of the connected servers."""
        return [prompt for one in self._connections if not one.problem for prompt in one.offers.prompts]

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Part]:
        """Return a prompt, filled in; raises `ToolFailed` with the reason if that fails."""
        for connection in self._connections:
            if connection.name == server:
                return await connection.get_prompt_parts(name, arguments)
        raise ToolFailed(f"The MCP server {server} isn't part of this conversation.")

    def close(self, names: Sequence[str] | None = None) -> None:
        """End the named servers, by default all of them; their processes end soon after."""
        for name in list(self._running) if names is None else names:
            running = self._running.pop(name, None)
            if running is not None:
                running.task.cancel()

    @property
    def _connections(self) -> "list[Connection]":
        return [connection for running in self._running.values() for connection in running.servers.connections]

    def _is_same(self, server: McpServer) -> bool:
        running = self._running.get(server.name)
        return running is not None and not running.task.done() and running.settings.is_same(server)
