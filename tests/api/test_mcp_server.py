"""The agent as an MCP server: with the official client and the inspector, over HTTP and stdio."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from tests.api.in_process_server import Hosted
from tests.api.test_key_scopes import create
from tests.app.program import Program

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import LIMIT, until

pytestmark = pytest.mark.slow
INSPECTOR = Path(__file__).parents[2] / ".mcp-peers/node_modules/@modelcontextprotocol/inspector-cli/build/cli.js"
READS = {"list_conversations", "get_conversation", "read_conversation", "search_conversations", "list_approvals"}
ACTS = {"send_message", "hand_off", "answer_approval"}


@asynccontextmanager
async def connected(host: Hosted, headers: dict[str, str], *, legacy: bool = False) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=headers, timeout=LIMIT) as http:
        transport = streamable_http_client(f"{host.url}/mcp", http_client=http)
        async with Client(transport, mode="legacy" if legacy else "auto", cache=None) as client:
            yield client


async def use(client: Client, name: str, **arguments: Any) -> Any:
    """Call a tool and return its result: decoded JSON, or the text of an error."""
    result = await client.call_tool(name, arguments)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text if result.is_error else json.loads(block.text)


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def start_session(host: Hosted, text: str) -> str:
    """Start a session and return its id."""
    answer = await host.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": text}]})
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-talaria-session-id"])


@pytest.mark.parametrize("legacy", [False, True])
async def test_official_client_reads_searches_and_gets_errors(host: Hosted, model: ModelServer, legacy: bool) -> None:
    model.script(Say("Bread needs time."))
    session_id = await start_session(host, "How do I bake sourdough?")
    async with connected(host, {"authorization": f"Bearer {host.key}"}, legacy=legacy) as client:
        assert await names(client) == READS | ACTS
        listed = await use(client, "list_conversations", limit=5)
        assert [one["id"] for one in listed["data"]] == [session_id]
        read = await use(client, "read_conversation", session_id=session_id)
        assert [one["text"] for one in read["data"]] == ["How do I bake sourdough?", "Bread needs time."]
        assert (await use(client, "search_conversations", q="sourdough"))["data"][0]["session_id"] == session_id
        assert (await use(client, "get_conversation", session_id=session_id))["running"] is False
        assert await use(client, "get_conversation", session_id="nothing") == "There is no session `nothing`."
        assert "No chat network is set up" in await use(client, "hand_off", session_id=session_id, to="telegram")
        assert "telegram" in await use(client, "send_message", to="telegram", text="hi")
        assert await use(client, "list_approvals") == {"data": []}
        assert "waits for an answer" in await use(client, "answer_approval", approval_id="x", decision="deny")


async def test_scopes_of_a_key_determine_its_mcp_tools(host: Hosted) -> None:
    reading, chatting = await create(host, "reader", "read", "chat"), await create(host, "guest", "chat")
    async with connected(host, reading) as client:
        assert await names(client) == READS
        assert "may not use it" in await use(client, "send_message", to="telegram", text="hi")
    for headers, status in (({"authorization": "Bearer wrong"}, 401), (chatting, 403)):
        refused = await host.http.post("/mcp", json={}, headers=headers)
        assert refused.status_code == status
    assert (await host.http.get("/mcp")).status_code == 405


async def test_pending_approval_is_listed_and_answered(host: Hosted, model: ModelServer, tmp_path: Path) -> None:
    command = f"rm -rf {tmp_path}/precious"
    (tmp_path / "precious").mkdir()
    model.script(Say(calls=[Ask("terminal", {"command": command})]), Say("I left it alone."))
    started = await host.http.post("/v1/runs", json={"input": "tidy up"})
    assert started.status_code == 202, started.text
    async with connected(host, {"authorization": f"Bearer {host.key}"}) as client:

        async def is_asked() -> bool:
            return bool((await use(client, "list_approvals"))["data"])

        await until(is_asked)
        (pending,) = (await use(client, "list_approvals"))["data"]
        assert (pending["tool"], command in pending["text"]) == ("terminal", True)
        decided = await use(client, "answer_approval", approval_id=pending["id"], decision="deny", answer="keep it")
        assert decided == {"id": pending["id"]}

        async def has_ended() -> bool:
            run = await host.http.get(f"/v1/runs/{started.json()['id']}")
            return bool(run.json()["status"] == "completed")

        await until(has_ended)
    assert (tmp_path / "precious").exists()
    assert "keep it" in str(model.received[-1].json["messages"])


async def test_owner_is_served_over_stdio(tmp_path: Path) -> None:
    program = Program(tmp_path)
    talaria = str(Path(program.environment()["PATH"].partition(":")[0]) / "talaria")
    parameters = StdioServerParameters(command=talaria, args=["mcp", "serve"], env=program.environment())
    async with asyncio.timeout(LIMIT), Client(parameters, cache=None) as client:
        assert await names(client) == READS | ACTS
        assert (await use(client, "list_conversations"))["data"] == []


async def test_inspector_lists_and_calls_tools(host: Hosted) -> None:
    node = shutil.which("node")
    if node is None or not INSPECTOR.exists():
        pytest.skip("The MCP inspector is not installed; `make apiclients` installs it where it is available")
    process = await asyncio.create_subprocess_exec(
        node, INSPECTOR, "--cli", f"{host.url}/mcp", "--transport", "http", "--header",
        f"Authorization: Bearer {host.key}", "--method", "tools/call", "--tool-name", "list_conversations",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(LIMIT):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    assert json.loads(json.loads(out)["content"][0]["text"])["data"] == []
