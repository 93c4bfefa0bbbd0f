"""Lifetime of the MCP servers of a session that is not open."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from talaria.app.session.workspaces import WorkspaceRegistry
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.testing.wait import until
from talaria.tools.mcp.session_servers import SessionServers
from talaria.tools.mcp.settings import McpServer
from talaria.tools.workspace import LocalWorkspace

COUNTER = str(Path(__file__).parents[2] / "tools" / "mcp" / "plain_server.py")
SERVER = McpServer(name="counter", command=sys.executable, args=(COUNTER,), connect_seconds=60)
ONE, TWO = SessionId("one"), SessionId("two")


async def open_servers(
    workspaces: WorkspaceRegistry, session_id: SessionId, folder: Path, jobs: asyncio.TaskGroup
) -> SessionServers:
    """Enter a workspace, connect its server, and retain the workspace."""
    workspace = workspaces.enter(session_id, LocalWorkspace(folder, {}), SessionContext(session_id=session_id))
    tools, problems = await workspace.servers.join([SERVER], folder, jobs)
    assert tools
    assert problems == {}
    workspace.keep()
    return workspace.servers


@pytest.mark.slow
async def test_mcp_servers_stay_running_and_are_reused(tmp_path: Path) -> None:
    workspaces = WorkspaceRegistry()
    async with asyncio.TaskGroup() as jobs:
        servers = await open_servers(workspaces, ONE, tmp_path, jobs)
        workspaces.leave(ONE)
        assert servers.is_running
        assert await open_servers(workspaces, ONE, tmp_path, jobs) is servers
        workspaces.close()
        assert workspaces.find(ONE) is None
        await until(lambda: not servers.is_running)


@pytest.mark.slow
async def test_idle_mcp_servers_are_stopped(tmp_path: Path) -> None:
    workspaces = WorkspaceRegistry(servers_idle=timedelta(milliseconds=10))
    async with asyncio.TaskGroup() as jobs:
        await open_servers(workspaces, ONE, tmp_path, jobs)
        workspaces.leave(ONE)
        await until(lambda: workspaces.find(ONE) is None)


@pytest.mark.slow
async def test_mcp_servers_that_were_left_first_are_stopped_first(tmp_path: Path) -> None:
    workspaces = WorkspaceRegistry(servers_kept=1)
    async with asyncio.TaskGroup() as jobs:
        await open_servers(workspaces, ONE, tmp_path, jobs)
        newest = await open_servers(workspaces, TWO, tmp_path, jobs)
        workspaces.leave(ONE)
        workspaces.leave(TWO)
        assert workspaces.find(ONE) is None
        assert newest.is_running
        workspaces.close()


@pytest.mark.slow
async def test_mcp_server_is_replaced_when_its_settings_change(tmp_path: Path) -> None:
    servers = SessionServers()
    async with asyncio.TaskGroup() as jobs:
        tools, _ = await servers.join([SERVER], tmp_path, jobs)
        moved = structs.replace(SERVER, session_env={"TALARIA_SESSION_CHAT_ID": "8"})
        same, _ = await servers.join([moved], tmp_path, jobs)
        fewer, _ = await servers.join([structs.replace(SERVER, include=("count",))], tmp_path, jobs)
        servers.close()
    assert same == tools
    assert len(fewer) < len(tools)
