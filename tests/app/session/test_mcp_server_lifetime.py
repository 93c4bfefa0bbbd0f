"""How long MCP servers of a session stay that nobody has open."""

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


async def joined(
    places: WorkspaceRegistry, session_id: SessionId, folder: Path, jobs: asyncio.TaskGroup
) -> SessionServers:
    """Enter a workplace, connect its server, and let the workplace be kept."""
    place = places.enter(session_id, LocalWorkspace(folder, {}), SessionContext(session_id=session_id))
    tools, problems = await place.servers.join([SERVER], folder, jobs)
    assert tools
    assert problems == {}
    place.keep()
    return place.servers


@pytest.mark.slow
async def test_servers_stay_and_are_used_again(tmp_path: Path) -> None:
    places = WorkspaceRegistry()
    async with asyncio.TaskGroup() as jobs:
        servers = await joined(places, ONE, tmp_path, jobs)
        places.leave(ONE)
        assert servers.is_running
        assert await joined(places, ONE, tmp_path, jobs) is servers
        places.close()
        assert places.find(ONE) is None
        await until(lambda: not servers.is_running)


@pytest.mark.slow
async def test_idle_servers_end(tmp_path: Path) -> None:
    places = WorkspaceRegistry(servers_idle=timedelta(milliseconds=10))
    async with asyncio.TaskGroup() as jobs:
        await joined(places, ONE, tmp_path, jobs)
        places.leave(ONE)
        await until(lambda: places.find(ONE) is None)


@pytest.mark.slow
async def test_servers_left_longest_ago_end_first(tmp_path: Path) -> None:
    places = WorkspaceRegistry(servers_kept=1)
    async with asyncio.TaskGroup() as jobs:
        await joined(places, ONE, tmp_path, jobs)
        newest = await joined(places, TWO, tmp_path, jobs)
        places.leave(ONE)
        places.leave(TWO)
        assert places.find(ONE) is None
        assert newest.is_running
        places.close()


@pytest.mark.slow
async def test_server_is_replaced_when_its_settings_change(tmp_path: Path) -> None:
    servers = SessionServers()
    async with asyncio.TaskGroup() as jobs:
        tools, _ = await servers.join([SERVER], tmp_path, jobs)
        moved = structs.replace(SERVER, session_env={"TALARIA_SESSION_CHAT_ID": "8"})
        same, _ = await servers.join([moved], tmp_path, jobs)
        fewer, _ = await servers.join([structs.replace(SERVER, include=("count",))], tmp_path, jobs)
        servers.close()
    assert same == tools
    assert len(fewer) < len(tools)
