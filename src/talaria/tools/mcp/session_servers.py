"""The MCP servers of one session: started once, shared by every agent of that session, closed with the session."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from talaria.contracts.tool import Tool
from talaria.tools.mcp.servers import McpServers
from talaria.tools.mcp.settings import McpServer

_TO_CLEAN_UP = 2.0  # seconds that a server which did not answer may take to end


class _Running(NamedTuple):
    settings: McpServer
    servers: McpServers
    task: "asyncio.Task[None]"


class SessionServers:
    """Servers by name. One stays connected as long as its settings stay the same, until `close`.

    A server gets the environment variables of the session as they are when it starts.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    @property
    def is_running(self) -> bool:
        """Whether there is a server that has not ended."""
        return any(not one.task.done() for one in self._running.values())

    async def join(
        self, wanted: Sequence[McpServer], log_folder: Path, jobs: asyncio.TaskGroup
    ) -> tuple[list[Tool], dict[str, str]]:
        """Connect to these servers and to no others; return their tools, and why a server is not connected, by name.

        New connections are tasks of ``jobs``. Raises `NotFound` where the library is missing.
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
        # The variables of the session differ when it has moved; that is no reason to lose what the server holds.
        return structs.replace(running.settings, session_env={}) == structs.replace(server, session_env={})

    def _close(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            running.task.cancel()
