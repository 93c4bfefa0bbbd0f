"""The protocol's own test server, from npm: questions, roots, prompts, resources, images and progress."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.tools.mcp.test_mcp import connected
from tests.tools.tool_calls import ScriptedPerson, call_from

from talaria.contracts.tool import ToolOutput
from talaria.core.messages import Text
from talaria.tools.mcp.session_servers import McpServers
from talaria.tools.mcp.settings import McpServer

_PACKAGE = Path(__file__).parents[3] / ".mcp-peers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


@pytest.fixture
async def everything(tmp_path: Path) -> AsyncIterator[McpServers]:
    node = shutil.which("node")
    if node is None or not _PACKAGE.exists():
        pytest.skip("server-everything is not installed; `make apiclients` installs it where it can be had")
    server = McpServer(
        name="all", command=node, args=(str(_PACKAGE), "stdio"), roots=(str(tmp_path),), connect_seconds=60
    )
    async with connected(tmp_path, server) as servers:
        assert servers.problems == {}
        yield servers


async def use(
    servers: McpServers,
    name: str,
    person: ScriptedPerson | None = None,
    shown: list[str] | None = None,
    **arguments: object,
) -> ToolOutput:
    tool = next(tool for tool in servers.tools if tool.name == f"mcp_all_{name}")
    call = call_from(Path(), person=person, progress=shown)
    return await tool.run(msgspec.convert(arguments, tool.arguments), call)


async def test_roots_progress_images_resources_and_prompts_are_supported(
    everything: McpServers, tmp_path: Path
) -> None:
    assert str(tmp_path) in (await use(everything, "get-roots-list")).text
    shown: list[str] = []
    await use(everything, "trigger-long-running-operation", shown=shown, duration=0.1, steps=2)
    assert shown == ["1 of 2", "2 of 2"]
    assert (await use(everything, "get-tiny-image")).images[0].media_type == "image/png"
    read = await use(everything, "read_resource", uri="demo://resource/dynamic/text/1")
    assert "Resource 1" in read.text
    assert read.source == "an MCP server"
    (connection,) = everything.connections
    assert "demo://resource/dynamic/text/{resourceId}" in connection.offers.resources
    (part,) = await connection.get_prompt_parts("args-prompt", {"city": "Oslo"})
    assert isinstance(part, Text)
    assert "Oslo" in part.text


async def test_questions_of_the_server_reach_the_person(everything: McpServers) -> None:
    person = ScriptedPerson(*["Ada"] + ["Skip this"] * 20)
    output = await use(everything, "trigger-elicitation-request", person)
    assert "The MCP server all asks:" in person.questions[0][0]
    assert "Decline" in person.questions[0][1]
    assert "Ada" in output.text
    assert "decline" in (await use(everything, "trigger-elicitation-request", ScriptedPerson("Decline"))).text.lower()
    assert "cancel" in (await use(everything, "trigger-elicitation-request", ScriptedPerson(None))).text.lower()
