"""All configured servers; the library is loaded only if there is one."""

import asyncio
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from talaria.contracts.tool import Tool
from talaria.core.errors import NotFound
from talaria.tools.mcp.settings import McpServer


class McpServers:
    """Owns the connections; `serve` runs for as long as they are needed."""

    def __init__(self, servers: Sequence[McpServer], log_folder: Path) -> None:
        self._connections: list[Any] = []
        if servers:
            connection = _library()
            self._connections = [connection.Connection(server, log_folder) for server in servers]

    async def serve(self) -> None:
        """Keep all servers connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(connection.serve())

    async def ready(self) -> None:
        """Wait until each server was connected, or could not be."""
        for connection in self._connections:
            await connection.tried()

    @property
    def tools(self) -> list[Tool]:
        """What the servers offer now; of a server that is away, what it offered last."""
        return [tool for connection in self._connections for tool in connection.tools]

    @property
    def problems(self) -> dict[str, str]:
        """Why a server is not connected, by its name."""
        return {connection.name: connection.problem for connection in self._connections if connection.problem}


def _library() -> Any:
    try:
        return importlib.import_module("talaria.tools.mcp.connection")
    except ModuleNotFoundError as error:
        command = importlib.import_module("talaria.core.extras").install_command("mcp")
        raise NotFound(f"The package for MCP servers is not installed. `{command}` adds it.") from error
